"""Hosts that can change places without changing any time.

Two hosts of a plan are alike where their links to every other host of it are of the same kinds, as are those
between them and inside them, and their GPUs and places are the same.  Exchanging them is then an automorphism of
all that times are made of.  Such classes may be alike in turn, as leaves with equally many hosts of a plan are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster_models.jobs.running import RunningJob
    from cluster_models.links.model import LinkModel
    from solver.candidates import IntArray
    from solver.replanning.problem import ReplanProblem

MOST_CLASSES: Final = 32
"""Classes whose exchange is worked out: of each two, all hosts are matched."""


def alike_hosts(
    hosts: Sequence[str], job: RunningJob, problem: ReplanProblem, links: LinkModel, *, apart: bool = False
) -> tuple[tuple[IntArray, ...], ...]:
    """Groups of exchangeable classes of exchangeable hosts of ``job``, as positions in ``hosts``.

    ``apart``: no class is exchanged for another as a whole, because places count (rules, ways up of switches).
    Hosts that can be exchanged with no other are left out.
    """
    number = {name: index for index, name in enumerate(links.nodes)}
    rows = np.array([number[host] for host in hosts], dtype=np.int64)
    kind = links.kinds.kind[np.ix_(rows, rows)]
    hardware = [_hardware(host, job, problem) for host in hosts]
    places = [_places(host, problem) for host in hosts]
    ways = [(np.sort(row).tobytes(), np.sort(column).tobytes()) for row, column in zip(kind, kind.T, strict=True)]
    classes = _sorted_out(kind, np.diagonal(kind), list(zip(hardware, places, ways, strict=True)))
    firsts = np.array([members[0] for members in classes])
    if apart or len(classes) == 1:
        groups = [[index] for index in range(len(classes))]
    else:
        inside = np.array([kind[members[0], members[-1]] for members in classes])
        keys = [(hardware[members[0]], len(members), kind[members[0], members[0]]) for members in classes]
        groups = _sorted_out(kind[np.ix_(firsts, firsts)], inside, keys)
    found: list[tuple[IntArray, ...]] = []
    for group in groups:
        members = tuple(np.array(classes[index]) for index in group)
        if len(members[0]) == 1:  # classes of one host are hosts
            found.append((np.concatenate(members),))
        elif len(members) <= MOST_CLASSES:
            found.append(members)
        else:
            found += [(each,) for each in members]
    return tuple(group for group in found if len(group) * len(group[0]) > 1)


def _hardware(host: str, job: RunningJob, problem: ReplanProblem) -> tuple[object, ...]:
    """Hardware of a host: its GPUs, and how many of them others hold, which send as well."""
    node = problem.nodes[host]
    others = sum(holder != job.id for holder in problem.holders.get(host, {}).values())
    return node.gpu_kind, node.gpu_count, node.nics, node.compute_slowdown, node.gpus_in_use, others


def _places(host: str, problem: ReplanProblem) -> tuple[str | None, ...]:
    """The places of a host that rules or switches may speak of."""
    labels = {"leaf", "zone", *(switch.label for switch in problem.snapshot.cluster.switches)}
    labels |= {label for job in problem.jobs if job.plan.workload for label in job.plan.workload.placement.labels}
    node = problem.nodes[host]
    return tuple(node.place(label) for label in sorted(labels - {"node"}))


def _sorted_out(kind: IntArray, inside: IntArray, keys: Sequence[object]) -> list[list[int]]:
    """Indices whose exchange leaves the matrix ``kind`` as it is, class by class; ``inside`` is its diagonal.

    Only those with equal ``keys`` are compared, and with one of a class: exchanges of two make up all others.
    """
    buckets: dict[object, list[list[int]]] = {}
    for index, key in enumerate(keys):
        classes = buckets.setdefault(key, [])
        for members in classes:
            if inside[members[0]] == inside[index] and _exchangeable(kind, members[0], index):
                members.append(index)
                break
        else:
            classes.append([index])
    return [members for found in buckets.values() for members in found]


def _exchangeable(kind: IntArray, a: int, b: int) -> bool:
    """Whether all pairs but (a, a) and (b, b) keep their kinds when ``a`` and ``b`` change places."""
    others = np.ones(len(kind), dtype=np.bool_)
    others[[a, b]] = False
    if kind[a, b] != kind[b, a]:
        return False
    return bool((kind[a, others] == kind[b, others]).all() and (kind[others, a] == kind[others, b]).all())
