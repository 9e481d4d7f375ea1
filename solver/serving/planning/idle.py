"""GPUs that no job holds and a serving plan does not use, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from cluster_models.cluster.topology import Node
from cluster_models.serving.goal import ServingGoal
from cluster_models.serving.plan import IdleGpus, IdleReason
from solver.serving.planning.groups import Group, watts_of
from solver.serving.planning.islands import Site
from solver.serving.planning.placing import PlacedGroup
from solver.serving.planning.zones import Zone


def idle_gpus(
    site: Site,
    zones: Sequence[Zone],
    offered: Sequence[Group],
    placed: Sequence[PlacedGroup],
    goal: ServingGoal,
    watts: float,
) -> tuple[IdleGpus, ...]:
    """Idle GPUs by node, in the cluster's order; ``offered`` are the groups that could serve, in ``zones``.

    ``watts``: power of the plan.
    """
    used = _used(site, placed)
    reason = _reason(site, zones, offered, used, goal, watts)
    return tuple(_idle(site, used, reason, goal))


def _idle(site: Site, used: dict[str, set[int]], reason: IdleReason, goal: ServingGoal) -> Iterator[IdleGpus]:
    for node in site.snapshot.cluster.nodes:
        if gpus := tuple(gpu for gpu in node.free_gpus if gpu not in used[node.name]):
            yield IdleGpus(node.name, gpus, _reason_of(node, goal) or reason)


def _reason_of(node: Node, goal: ServingGoal) -> IdleReason | None:
    if not node.usable:
        return IdleReason.NOT_READY
    return IdleReason.AVOIDED if node.name in goal.avoid_nodes else None


def _reason(
    site: Site,
    zones: Sequence[Zone],
    offered: Sequence[Group],
    used: dict[str, set[int]],
    goal: ServingGoal,
    watts: float,
) -> IdleReason:
    """Why the GPUs that could be used are not."""
    if not goal.objective.is_maximum:
        return IdleReason.NOT_NEEDED
    free = [sum(gpu not in used[node] for node, gpu in island.gpus) for island in site.islands]
    fitting = [group for group in offered if _fits(group, [free[island] for island in zones[group.zone].islands])]
    if not fitting:
        return IdleReason.TOO_FEW
    taken = sum(len(gpus) for gpus in used.values())
    if all(_is_over(goal, taken, watts, group, watts_of(group, zones[group.zone])) for group in fitting):
        return IdleReason.BUDGET
    return IdleReason.NO_GAIN


def _is_over(goal: ServingGoal, gpus: int, watts: float, group: Group, more_watts: float) -> bool:
    """Whether one more ``group`` would exceed the goal's limits."""
    over_gpus = goal.max_gpus is not None and gpus + group.gpus > goal.max_gpus
    return over_gpus or (goal.max_power_watts is not None and watts + more_watts > goal.max_power_watts)


def _fits(group: Group, free: Collection[int]) -> bool:
    return sum(free) >= group.gpus and all(
        sum(each // size for each in free) >= count for size, count in group.slots
    )


def _used(site: Site, placed: Sequence[PlacedGroup]) -> dict[str, set[int]]:
    """Numbers of the GPUs in use by node."""
    used: dict[str, set[int]] = defaultdict(set)
    for group in placed:
        for replica in group.replicas:
            for part in replica.parts:
                for node, gpu in site.islands[part.island].gpus[part.start : part.start + part.size]:
                    used[node].add(gpu)
    return used
