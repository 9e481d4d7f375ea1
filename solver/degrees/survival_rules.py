"""Losses that a plan must survive, as rules and shardings that the search already knows (docs/resilience.md).

Live copies on GPUs are replicas of unsharded state, so ``survive`` means no sharding and replicas in enough places.
Checkpoints in the memory of the next host are copies of any state for the loss of one node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cluster_models.cluster.topology import Node
from cluster_models.errors import InvalidWorkload
from cluster_models.training.placement_rules import RankGroup, Spread
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.placement.rules import NODE
from solver.problem import PlanningProblem

COPIES: Final = (RankGroup.DATA, RankGroup.STAGE, RankGroup.JOB)
"""Groups that hold all copies of something: kept together in few places, so are the copies."""


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses asked for that replicas must cover, and whether memory covers one node."""

    by_replicas: dict[str, int]
    by_memory: bool


def losses_of(workload: TrainingWorkload) -> Losses:
    """How each loss is covered; memory is enough for one node where nothing more is asked."""
    by_memory = workload.memory_checkpoint and workload.survive == {NODE: 1}
    return Losses({} if by_memory else dict(workload.survive), by_memory)


def surviving(problem: PlanningProblem) -> PlanningProblem:
    """The problem whose plans survive what the workload asks, by placement rules and shardings.

    Raises ``InvalidWorkload`` where the workload or the cluster makes that impossible.
    """
    workload = problem.workload
    if not workload.survive:
        return problem
    losses = losses_of(workload)
    usable = [n for n in problem.snapshot.cluster.nodes if n.usable and n.name not in workload.avoid_nodes]
    for label, count in workload.survive.items():
        _check_places(label, count, usable)
    for label, count in losses.by_replicas.items():
        _check_copies(label, count, workload)
    rules = [Spread(RankGroup.DATA, label, count + 1) for label, count in losses.by_replicas.items()]
    if losses.by_memory:
        rules.append(Spread(RankGroup.JOB, NODE, 2))
    placement = replace(workload.placement, spread=(*workload.placement.spread, *rules))
    sharding = (Sharding.NONE,) if losses.by_replicas else workload.sharding
    return replace(problem, workload=replace(workload, placement=placement, sharding=sharding, survive={}))


def _check_places(label: str, count: int, usable: Sequence[Node]) -> None:
    field = f"workload.survive.{label}"
    without = [node.name for node in usable if node.place(label) is None]
    if without:
        known = sorted({name for node in usable for name in node.labels} | {NODE, "nvlink_domain"})
        raise InvalidWorkload(
            field,
            count,
            f"{len(without)} of {len(usable)} usable nodes have no such label, {without[0]} for one",
            f"label them, avoid them, or use one of {', '.join(known)}",
        )
    places = len({node.place(label) for node in usable})
    if usable and count >= places:
        remedy = f"ask for at most {places - 1}" if places > 1 else "ask for a narrower label"
        raise InvalidWorkload(
            field, count, f"the usable nodes have only {places} different values of {label}", remedy
        )


def _check_copies(label: str, count: int, workload: TrainingWorkload) -> None:
    """Copies on GPUs need unsharded state and enough replicas that may sit apart."""
    field, copies = f"workload.survive.{label}", count + 1
    if Sharding.NONE not in workload.shardings:
        memory = (
            ""
            if workload.memory_checkpoint
            else "; for one node alone, memory_checkpoint: true is enough (with survive: {node: 1})"
        )
        raise InvalidWorkload(
            field,
            count,
            f"sharded state exists once, and the workload allows only sharding {', '.join(workload.shardings)}",
            f"allow sharding: [none]{memory}",
        )
    pinned = workload.pinned.get("data", copies)
    if pinned < copies:
        raise InvalidWorkload(
            "workload.pinned.data",
            pinned,
            f"survive asks for copies in {copies} places of {label}",
            f"pin at least {copies}, or survive less",
        )
    for index, rule in enumerate(workload.placement.keep_together):
        if rule.group in COPIES and rule.within == label and rule.at_most < copies:
            raise InvalidWorkload(
                field,
                count,
                f"contradicts placement.keep_together[{index}]: all copies within {rule.at_most} of {label}",
                f"drop that rule, or allow at_most: {copies}",
            )
