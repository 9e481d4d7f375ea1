"""The same groups with lost replicas on other GPUs: each keeps its shape and, of its places, those that live."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from cluster_models.jobs.serving import gpus_of
from cluster_models.serving.replicas import GpuPlace, Replica, ReplicaGroup
from solver.serving.planning.islands import Site, site_of
from solver.serving.recovery.problem import Gpu, RecoveryProblem
from solver.serving.recovery.settling import with_free


def swapped_groups(problem: RecoveryProblem) -> tuple[ReplicaGroup, ...] | None:
    """The groups of the running plan, lost replicas on spare GPUs; ``None`` where no node has enough of them."""
    job = problem.job
    free = frozenset(gpu for gpu in problem.spare_gpus if problem.nodes[gpu[0]].usable)
    site = site_of(with_free(problem.snapshot, free | (job.gpus - problem.lost)), job.asked.goal)
    return swapped(job.plan.groups, problem.lost, free, site)


def swapped(
    groups: Sequence[ReplicaGroup], lost: Collection[Gpu], spare: Collection[Gpu], site: Site
) -> tuple[ReplicaGroup, ...] | None:
    """``groups`` without a GPU that is ``lost``: its places go to free GPUs of one node each, near the others.

    ``site`` has all free GPUs.  ``None`` where no node has enough of them.
    """
    free: dict[str, list[int]] = defaultdict(list)
    for name, gpu in sorted(spare):
        free[name].append(gpu)
    place = {name: number for number, island in enumerate(site.islands) for name in island.nodes}
    found = []
    for group in groups:
        replicas = []
        for replica in group.replicas:
            whole = _whole(replica, lost, free, place, site)
            if whole is None:
                return None
            replicas.append(whole)
        found.append(replace(group, replicas=tuple(replicas)))
    return tuple(found)


def _whole(
    replica: Replica, lost: Collection[Gpu], free: dict[str, list[int]], place: dict[str, int], site: Site
) -> Replica | None:
    if not any(gpu in lost for gpu in gpus_of(replica)):
        return replica
    broken = [_is_broken(each, lost) for each in replica.places]
    for each, is_broken in zip(replica.places, broken, strict=True):
        if is_broken:  # what lives beside a lost GPU may serve again
            free[each.node] += [gpu for gpu in each.gpus if (each.node, gpu) not in lost]
    near = [place[each.node] for each, is_broken in zip(replica.places, broken, strict=True) if not is_broken]
    kind = {name: site.islands[number].gpu_kind for name, number in place.items()}
    places: list[GpuPlace] = []
    for each, is_broken in zip(replica.places, broken, strict=True):
        if not is_broken:
            places.append(each)
            continue
        able = [
            name
            for name, gpus in sorted(free.items())
            if len(gpus) >= len(each.gpus) and kind.get(name) == replica.gpu_kind
        ]
        if not able:
            return None
        best = min(able, key=lambda name: (_far_s(place[name], near, site), name != each.node, len(free[name])))
        own = sorted(free[best])[: len(each.gpus)]
        free[best] = [gpu for gpu in free[best] if gpu not in own]
        near.append(place[best])
        places.append(GpuPlace(best, tuple(own)))
    return replace(replica, places=tuple(places))


def _is_broken(place: GpuPlace, lost: Collection[Gpu]) -> bool:
    return any((place.node, gpu) in lost for gpu in place.gpus)


def _far_s(island: int, near: Sequence[int], site: Site) -> float:
    """Seconds of a large message to the farthest of the islands ``near``."""
    others = [each for each in near if each != island]
    return float(np.max(site.crossing_s[island, others])) if others else 0.0
