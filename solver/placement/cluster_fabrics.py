"""The nodes of a cluster that a plan may use, as fabrics: by GPU kind, GPUs offered, and units on NVLink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

import numpy as np

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.power import capped
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Node
from cluster_models.errors import InvalidWorkload
from cluster_models.links.model import LinkModel
from cluster_models.training.workload import TrainingWorkload
from solver.costs.calibration import calibration_of
from solver.placement.fabric import HEALTH_BYTES, Fabric
from solver.placement.link_times import flow_levels, times_over

MOST_KINDS: Final = 3
"""GPU kinds that one plan mixes at most."""
MOST_WIDTHS: Final = 36
"""Nodes of an NVLink domain up to which units of every size are tried; beyond it divisors and powers of two."""


def fabrics(
    snapshot: ClusterSnapshot,
    workload: TrainingWorkload,
    links: LinkModel,
    *,
    fitted: FittedParameters | None = None,
) -> tuple[Fabric, ...]:
    """One fabric per GPU kind, node size and unit; nodes with more GPUs also serve as smaller ones.

    Among fabrics of the same nodes the one with the widest units comes first. ``fitted`` are the user's own
    parameters.  Kinds that cannot compute in the workload's precision are left out where others can. Raises
    ``InvalidWorkload`` when a node to avoid does not exist.
    """
    nodes = _usable_nodes(snapshot, workload)
    names = sorted({node.gpu_kind for _, node in nodes})
    return tuple(_fabrics_of(snapshot, workload, links, fitted, nodes, [(name,) for name in names]))


def mixed_fabrics(
    snapshot: ClusterSnapshot,
    workload: TrainingWorkload,
    links: LinkModel,
    *,
    fitted: FittedParameters | None = None,
) -> tuple[Fabric, ...]:
    """The same for every set of two to ``MOST_KINDS`` GPU kinds."""
    nodes = _usable_nodes(snapshot, workload)
    names = sorted({node.gpu_kind for _, node in nodes})
    sets = [kinds for size in range(2, MOST_KINDS + 1) for kinds in combinations(names, size)]
    return tuple(_fabrics_of(snapshot, workload, links, fitted, nodes, sets))


def _usable_nodes(snapshot: ClusterSnapshot, workload: TrainingWorkload) -> list[tuple[int, Node]]:
    """Position and node of all that a plan may use, those able to compute in its precision if any is."""
    nodes = snapshot.cluster.nodes
    unknown = sorted(set(workload.avoid_nodes) - {node.name for node in nodes})
    if unknown:
        raise InvalidWorkload("workload.avoid_nodes", unknown, "no such node in the cluster")
    usable = [(i, node) for i, node in enumerate(nodes) if node.usable and node.name not in workload.avoid_nodes]
    kinds = snapshot.cluster.gpu_kinds
    able = [(i, node) for i, node in usable if workload.precision in kinds[node.gpu_kind].peak_flops]
    return able or usable


def _fabrics_of(
    snapshot: ClusterSnapshot,
    workload: TrainingWorkload,
    links: LinkModel,
    fitted: FittedParameters | None,
    nodes: Sequence[tuple[int, Node]],
    kind_sets: Iterable[tuple[str, ...]],
) -> Iterator[Fabric]:
    """Fabrics for each of ``kind_sets`` and node size on which all its kinds have nodes, wide units first."""
    for names in kind_sets:
        kinds = tuple(capped(snapshot.cluster.gpu_kinds[name], workload.gpu_power_cap_watts) for name in names)
        of_kinds = [(i, node) for i, node in nodes if node.gpu_kind in names]
        for size in sorted({len(node.free_gpus) for _, node in of_kinds}):
            chosen = [(i, node) for i, node in of_kinds if len(node.free_gpus) >= size]
            if {node.gpu_kind for _, node in chosen} != set(names):
                continue
            in_use = np.array([[len(node.gpus_in_use)] for _, node in chosen])
            fabric = Fabric(
                names=tuple(node.name for _, node in chosen),
                members=np.array([[i] for i, _ in chosen]),
                slowdown=np.array([node.compute_slowdown for _, node in chosen]),
                kinds=kinds,
                kind=np.array([names.index(node.gpu_kind) for _, node in chosen]),
                gpus_per_node=size,
                in_use=in_use,
                times=times_over(links, flow_levels(size, in_use)),
                domain_shares=tuple(
                    calibration_of(kind, workload.framework, fitted).domain_share for kind in kinds
                ),
            )
            if fabric.is_mixed:
                yield fabric
            else:
                yield from in_units(fabric, [node.nvlink_domain for _, node in chosen])


def in_units(fabric: Fabric, domains: Sequence[str]) -> Iterator[Fabric]:
    """``fabric``, whose units are nodes, in units of ever fewer nodes of a domain, last itself.

    ``domains`` (N,): the NVLink domain of each node.  In a domain, slow nodes share units, and of those left
    over the slowest are.
    """
    groups: dict[str, list[int]] = {}
    for position in _by_health(fabric):
        groups.setdefault(domains[position], []).append(position)
    wider: list[tuple[int, int]] = []
    for width in unit_widths(max(map(len, groups.values()))):
        units = [
            group[first : first + width]
            for group in groups.values()
            for first in range(0, len(group) - width + 1, width)
        ]
        found = regrouped(fabric, sorted(units)) if width > 1 else fabric
        yield replace(found, wider=tuple(wider))
        wider.append((found.gpus_per_unit, found.nodes))


def unit_widths(most: int) -> list[int]:
    """Numbers of nodes that units have where a domain has ``most`` of them, decreasing."""
    every = range(most, 0, -1)
    return [width for width in every if most <= MOST_WIDTHS or most % width == 0 or width.bit_count() == 1]


def regrouped(fabric: Fabric, units: Sequence[Sequence[int]]) -> Fabric:
    """The units of ``fabric``, which are nodes, joined to ``units`` of equally many."""
    joined = np.array(units)
    return replace(
        fabric,
        names=tuple(fabric.names[first] for first in joined[:, 0]),
        members=fabric.members[joined, 0],
        in_use=fabric.in_use[joined, 0],
        slowdown=fabric.slowdown[joined].max(axis=1),
        kind=fabric.kind[joined[:, 0]],
    )


def _by_health(fabric: Fabric) -> list[int]:
    """Nodes of a fabric, the healthiest first: by compute slowdown, then by their links to all others."""
    hop_s = fabric.hop_s(HEALTH_BYTES)
    slow_links = np.maximum(hop_s, hop_s.T).mean(axis=1)
    return [int(position) for position in np.lexsort((slow_links, fabric.slowdown))]
