"""The units of nodes that can take the slots of a job's placement after a failure.

A slot of a placement holds the ranks of one unit: a node, or ``u`` nodes of an NVLink domain that are placed
together (docs/placement.md).  A unit that lost a node is made whole from spare nodes of its domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cluster_models.training.plan import Degrees
from solver.replanning.resources import JobResources

Unit = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a job's site, all of ``width`` nodes; the first ``slots`` are those of its plan, in rank order.

    ``serves``: which can carry ranks now.  ``repairs`` names, for each unit of the plan that does not, the one made
    of what is left of it; the others stand for themselves.
    """

    width: int
    slots: int
    members: tuple[Unit, ...]
    serves: tuple[bool, ...]
    repairs: tuple[int, ...]


def site_units(resources: JobResources, pool: Sequence[str]) -> Units:
    """The widest units that the plan's nodes make and of which enough serve, else the widest with most.

    ``pool``: nodes that the job may take beside its own; those of other GPU kinds are left out.
    """
    hosts, gpus = resources.job.nodes, resources.job.plan.placement.gpus_per_node
    nodes = resources.problem.nodes
    kinds = {nodes[host].gpu_kind for host in hosts}
    usable = [
        name
        for name in dict.fromkeys(pool)
        if name not in resources.held and nodes[name].gpu_kind in kinds and resources.offers(name, gpus)
    ]
    usable.sort(key=lambda name: nodes[name].compute_slowdown)
    found = [_units(resources, usable, width) for width in _widths(resources)]
    return next((units for units in found if sum(units.serves) >= units.slots), found[0])


def _widths(resources: JobResources) -> list[int]:
    """Nodes of a unit, decreasing: as many as the plan's hosts fill in its order and its groups allow.

    Single nodes are none for tensor groups that span some: links between domains would count as those inside.
    """
    plan, nodes = resources.job.plan, resources.problem.nodes
    hosts, gpus = plan.placement.hosts, plan.placement.gpus_per_node
    domains = [nodes[host].nvlink_domain for host in hosts]
    found = []
    for width in range(max(map(domains.count, domains)), 0, -1):
        chunks = [domains[first : first + width] for first in range(0, len(hosts), width)]
        whole = len(hosts) % width == 0 and all(len(set(chunk)) == 1 for chunk in chunks)
        if whole and fits_units(plan.configuration.degrees, width * gpus):
            found.append(width)
    return found or [1]


def fits_units(degrees: Degrees, gpus: int) -> bool:
    """Whether units of ``gpus`` GPUs hold whole tensor groups, and cells and expert blocks fill them evenly."""
    cell = degrees.tensor * degrees.context
    even = all(gpus % width == 0 or width % gpus == 0 for width in (cell, degrees.expert_block))
    return even and degrees.gpus % gpus == 0 and gpus >= degrees.tensor and gpus % degrees.expert_tensor == 0


def _units(resources: JobResources, usable: Sequence[str], width: int) -> Units:
    hosts, nodes = resources.job.nodes, resources.problem.nodes
    own = [hosts[first : first + width] for first in range(0, len(hosts), width)]
    serves = [all(resources.carries(host) for host in unit) for unit in own]
    left: dict[str, list[str]] = {}
    for name in usable:
        left.setdefault(nodes[name].nvlink_domain, []).append(name)
    members, repairs = list(own), list(range(len(own)))
    for slot, unit in enumerate(own if width > 1 else ()):
        here = left.get(nodes[unit[0]].nvlink_domain, [])
        broken = [host for host in unit if not resources.carries(host)]
        if 0 < len(broken) < width and len(broken) <= len(here):
            takers = dict(zip(broken, here, strict=False))
            repairs[slot] = len(members)
            members.append(tuple(takers.get(host, host) for host in unit))
            del here[: len(broken)]
    for slot, unit in enumerate(own if width > 1 else ()):
        if not serves[slot] and repairs[slot] == slot:
            alone = [host for host in unit if resources.carries(host)]
            left.setdefault(nodes[unit[0]].nvlink_domain, []).extend(alone)
    for group in left.values():
        members += [tuple(group[first : first + width]) for first in range(0, len(group) - width + 1, width)]
    known = serves + [True] * (len(members) - len(own))
    return Units(width, len(own), tuple(members), tuple(known), tuple(repairs))
