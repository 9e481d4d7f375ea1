"""Joint plans of a trainer and an engine: a search over the ways to share the nodes out.

A *split* gives nodes to both parts: all of them in turns, or so many to the trainer and the others to the engine.
The step of a split is no shorter than its parts allow: the trainer's update is no faster on so many nodes than the
optimistic price of any candidate there (``solver.fleet.options``), a rollout no faster than replicas of its best
shape on the best links (``solver.reinforcement.rollout``), and weights need their time on the fastest link.

Splits are planned in the order of these bounds: the trainer by ``solver.search`` on the nodes it likes best, then
the engine by ``solver.serving`` on what is left.  The search ends when no bound is left below the best step.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cluster_models.errors import SolverFailed
from cluster_models.reinforcement.plan import (
    JointCertificate,
    NoReinforcementPlan,
    ReinforcementPlan,
    Rollout,
    SharedMemory,
    Split,
    SplitEnd,
    StepParts,
    WeightMove,
)
from cluster_models.reinforcement.workload import Arrangement
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import NoPlan, Plan, StopReason
from solver import search
from solver.degrees.promising import IsTimeUp
from solver.problem import IsCancelled, OnProgress, Progress, SearchOptions
from solver.reinforcement.parts import (
    check_problem,
    least_training_s,
    served_policy,
    serving_problem,
    training_problem,
    update_beside,
)
from solver.reinforcement.problem import ReinforcementProblem
from solver.reinforcement.rollout import Batch, RolloutFloors, drawn_batch, plan_rollout, rollout_floors
from solver.reinforcement.weights import (
    broadcast,
    least_broadcast_s,
    offload_s,
    resharding,
    shared_memory,
)
from solver.serving.plan import provenance_of

LEAST_PLAN_S: Final = 0.5
MOST_PLAN_S: Final = 20.0
PLAN_SHARE: Final = 0.3
"""Time limit of the plan of one part: this share of what is left, within these."""
CURVE_SHARE: Final = 0.3
"""Share of the time limit for the bounds of the trainer by number of nodes."""
LATE_S: Final = 10.0
"""Without any plan the search goes on for so long beyond its time limit, and in any case with the first split."""


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """A split with both parts planned."""

    split: Split
    training: Plan
    serving: ServingPlan
    rollout: Rollout
    weights: WeightMove
    memory: SharedMemory | None

    @property
    def parts(self) -> StepParts:
        assert self.split.parts is not None  # it was planned
        return self.split.parts


@dataclass(slots=True, eq=False)
class _Work:
    """State of the search."""

    problem: ReinforcementProblem
    options: SearchOptions
    on_progress: OnProgress | None
    is_cancelled: IsCancelled
    batch: Batch
    floors: RolloutFloors
    started: float = field(default_factory=time.monotonic)
    trainers: dict[tuple[Arrangement, int], Plan | NoPlan] = field(default_factory=dict)
    best: _Found | None = None
    has_tried: bool = False

    def left_s(self) -> float:
        return self.options.time_limit_s - (time.monotonic() - self.started)

    def part_options(self) -> SearchOptions:
        limit_s = float(np.clip(PLAN_SHARE * self.left_s(), LEAST_PLAN_S, MOST_PLAN_S))
        return replace(self.options, time_limit_s=limit_s, alternatives=0)

    def must_stop(self) -> StopReason | None:
        if self.is_cancelled():
            return StopReason.CANCELLED
        late_s = 0.0 if self.best is not None else LATE_S
        return StopReason.TIME_LIMIT if self.has_tried and self.left_s() <= -late_s else None

    def tell(self, splits: int, left: int, bound_s: float) -> None:
        if self.on_progress is None:
            return
        elapsed_s, best = time.monotonic() - self.started, self.best
        step_s = None if best is None else best.parts.step_s
        gap = None if step_s is None else max(0.0, 1.0 - bound_s / step_s)
        incumbent = None if best is None else split_words(best.split)
        self.on_progress(Progress(elapsed_s, "splits", splits, left, step_s, bound_s, gap, incumbent))


def plan_reinforcement(
    problem: ReinforcementProblem,
    options: SearchOptions,
    *,
    on_progress: OnProgress | None = None,
    is_cancelled: IsCancelled = lambda: False,
) -> ReinforcementPlan | NoReinforcementPlan:
    """The best joint plan found within the time limit, with its bound, or that nothing fits.

    Raises ``InvalidInput`` where workload, policy, engine and cluster do not go together, and ``SolverFailed``
    where it ends before any split was planned.
    """
    check_problem(problem)
    batch = drawn_batch(problem.workload)
    floors = rollout_floors(problem, served_policy(problem), batch)
    work = _Work(problem, options, on_progress, is_cancelled, batch, floors)
    limit_s = (1.0 - CURVE_SHARE) * options.time_limit_s
    splits = splits_of(problem, floors, is_time_up=lambda: is_cancelled() or work.left_s() <= limit_s)
    heap = [(split.bound_s, index) for index, split in enumerate(splits) if split.bound_s is not None]
    heapq.heapify(heap)
    stopped_by = unreached = StopReason.PROVEN
    while heap:
        bound_s, index = heap[0]
        work.tell(len(splits), len(heap), bound_s)
        if work.best is not None and bound_s >= work.best.parts.step_s * (1.0 - options.gap):
            break
        if (reason := work.must_stop()) is not None:
            stopped_by = reason
            break
        heapq.heappop(heap)
        splits[index] = sharper = _sharpened(work, splits[index])
        if sharper.bound_s is not None and sharper.bound_s > bound_s:
            heapq.heappush(heap, (sharper.bound_s, index))
            continue
        splits[index], work.has_tried = _planned(work, sharper), True
        if splits[index].end is SplitEnd.NOT_REACHED:
            unreached = work.must_stop() or StopReason.TIME_LIMIT
    stopped_by = unreached if stopped_by is StopReason.PROVEN else stopped_by
    waiting = SplitEnd.RULED_OUT if stopped_by is StopReason.PROVEN else SplitEnd.NOT_REACHED
    for bound_s, index in heap:
        is_beaten = work.best is not None and bound_s >= work.best.parts.step_s * (1.0 - options.gap)
        splits[index] = replace(splits[index], end=SplitEnd.RULED_OUT if is_beaten else waiting)
    return _concluded(work, splits, stopped_by)


def splits_of(
    problem: ReinforcementProblem, floors: RolloutFloors, *, is_time_up: IsTimeUp = lambda: False
) -> list[Split]:
    """All splits that are looked at, with bounds for which no rollout is simulated yet."""
    every, size = len(problem.nodes), problem.gpus_per_node
    curve = least_training_s(problem, is_time_up=is_time_up)
    found = []
    if Arrangement.COLOCATED in problem.arrangements:
        training_s, rollout_s = min(curve.values(), default=np.inf), floors.quick_s(every * size)
        for offloads in (False, True):
            bound_s = StepParts(rollout_s, training_s, 0.0, 0.0, is_overlapped=False).step_s
            found.append(_open(Arrangement.COLOCATED, (every, every), offloads, (training_s, rollout_s), bound_s))
    if Arrangement.SEPARATE in problem.arrangements:
        move_s, is_overlapped = least_broadcast_s(problem), problem.workload.staleness > 0
        for nodes, training_s in curve.items() or [(every - 1, np.inf)]:
            if nodes >= every:
                continue
            rollout_s = floors.quick_s((every - nodes) * size)
            bound_s = StepParts(rollout_s, training_s, move_s, 0.0, is_overlapped).step_s
            shares = nodes, every - nodes
            found.append(_open(Arrangement.SEPARATE, shares, False, (training_s, rollout_s), bound_s))
    return found


def _open(
    arrangement: Arrangement,
    nodes: tuple[int, int],
    offloads: bool,
    bounds_s: tuple[float, float],
    bound_s: float,
) -> Split:
    end = SplitEnd.NOT_REACHED
    if not np.isfinite(bound_s):
        end = SplitEnd.NO_ROLLOUT if np.isfinite(bounds_s[0]) else SplitEnd.NO_TRAINING
    training_s, rollout_s, step_s = (each if np.isfinite(each) else None for each in (*bounds_s, bound_s))
    return Split(arrangement, *nodes, offloads, training_s, rollout_s, step_s, end)


def _sharpened(work: _Work, split: Split) -> Split:
    """The split with a rollout that was simulated in its bound."""
    assert split.bound_s is not None  # both parts fit
    least_s = work.floors.least_s(split.rollout_nodes * work.problem.gpus_per_node)
    if split.rollout_bound_s == least_s:
        return split
    bound_s = split.bound_s + _together_s(work, replace(split, rollout_bound_s=least_s)) - _together_s(work, split)
    return replace(split, rollout_bound_s=least_s, bound_s=bound_s)


def _together_s(work: _Work, split: Split) -> float:
    """Seconds that both parts take by their bounds."""
    assert split.rollout_bound_s is not None and split.training_bound_s is not None  # noqa: PT018 - both parts fit
    overlaps = work.problem.workload.staleness > 0 and split.arrangement is Arrangement.SEPARATE
    return StepParts(split.rollout_bound_s, split.training_bound_s, 0.0, 0.0, overlaps).step_s


def _planned(work: _Work, split: Split) -> Split:
    """The split with both parts planned, kept where it is the best so far; as it is where time ended before."""
    problem, is_shared = work.problem, split.arrangement is Arrangement.COLOCATED
    key = split.arrangement, split.training_nodes
    if key not in work.trainers:
        work.trainers[key] = _trainer(work, split)
    training = work.trainers[key]
    if isinstance(training, NoPlan):
        if not training.is_proven:
            return split
        return replace(split, training_bound_s=None, bound_s=None, end=SplitEnd.NO_TRAINING)
    hosts = set(training.placement.hosts)
    nodes = [node.name for node in problem.nodes if (node.name in hosts) == is_shared]
    memory, served, floors = None, served_policy(problem), work.floors
    if is_shared:
        memory = shared_memory(problem, training, offloads=split.offloads)
        if memory is None:
            return replace(split, end=SplitEnd.NO_ROLLOUT)
        served = served_policy(problem, memory.engine_fraction)
        floors = rollout_floors(problem, served, work.batch)
    try:
        made = plan_rollout(problem, served, nodes, floors, work.part_options, work.is_cancelled)
    except SolverFailed:  # in this time
        return split
    if made is None:
        return replace(split, end=SplitEnd.NO_ROLLOUT)
    serving, rollout = made
    weights = resharding(problem, training) if is_shared else broadcast(problem, training, serving)
    parts = StepParts(
        rollout_s=rollout.finish_s,
        training_s=problem.workload.optimizer_steps * training.time.step_s,
        weights_s=weights.seconds,
        offload_s=0.0 if memory is None else offload_s(problem, training, memory),
        is_overlapped=problem.workload.staleness > 0 and not is_shared,
    )
    assert split.bound_s is not None  # both parts fit
    assert split.training_bound_s is not None  # likewise
    training_s = max(split.training_bound_s, problem.workload.optimizer_steps * training.certificate.bound)
    known = replace(split, training_bound_s=training_s)
    bound_s = split.bound_s + _together_s(work, known) - _together_s(work, split)
    known = replace(known, bound_s=min(bound_s, parts.step_s), end=SplitEnd.SLOWER, parts=parts)
    if work.best is None or parts.step_s < work.best.parts.step_s:
        work.best = _Found(known, training, serving, rollout, weights, memory)
    return known


def _trainer(work: _Work, split: Split) -> Plan | NoPlan:
    problem, update = work.problem, None
    if split.arrangement is Arrangement.COLOCATED:
        update = update_beside(problem, problem.workload.rollout.engine.reserved_bytes)
    asked = training_problem(problem, split.training_nodes, update)
    return search.plan(asked, work.part_options(), is_cancelled=work.is_cancelled)


def _concluded(work: _Work, splits: list[Split], stopped_by: StopReason) -> ReinforcementPlan | NoReinforcementPlan:
    problem, best = work.problem, work.best
    serving = serving_problem(problem, served_policy(problem), [node.name for node in problem.nodes])
    provenance = provenance_of(serving, work.options)
    if best is None:
        if any(split.end is SplitEnd.NOT_REACHED for split in splits):
            raise SolverFailed("the search was stopped before any split was planned; give it more time")
        return NoReinforcementPlan(tuple(splits), provenance)
    ended = [replace(split, end=SplitEnd.CHOSEN) if split is best.split else split for split in splits]
    step_s = best.parts.step_s
    bounds_s = [split.bound_s for split in ended if split.bound_s is not None]
    bound_s = min(step_s, *bounds_s)
    ends = [split.end for split in ended]
    return ReinforcementPlan(
        architecture=problem.architecture,
        workload=problem.workload,
        arrangement=best.split.arrangement,
        training=best.training,
        serving=best.serving,
        parts=best.parts,
        rollout=best.rollout,
        weights=best.weights,
        memory=best.memory,
        splits=tuple(sorted(ended, key=lambda split: np.inf if split.bound_s is None else split.bound_s)),
        certificate=JointCertificate(
            step_s=step_s,
            bound_s=bound_s,
            gap=(step_s - bound_s) / step_s,
            stopped_by=stopped_by,
            splits=len(ended),
            plans_made=sum(split.parts is not None for split in ended),
            ruled_out=ends.count(SplitEnd.RULED_OUT),
        ),
        provenance=provenance,
    )


def split_words(split: Split) -> str:
    """The split in a few words."""
    if split.arrangement is Arrangement.COLOCATED:
        nodes = "1 node" if split.training_nodes == 1 else f"{split.training_nodes} nodes"
        return f"colocated on {nodes}{', states offloaded' if split.offloads else ''}"
    return f"separate, {split.training_nodes} + {split.rollout_nodes} nodes"
