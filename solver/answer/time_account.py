"""Where the time of a placed step goes, and its timeline."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.training.plan import TimelineEvent
from cluster_models.training.rank_costs import TimeBreakdown
from solver.pipeline.simulation import simulate
from solver.placement.problem import PlacedTimes
from solver.refine import Candidate

FloatArray = npt.NDArray[np.float64]

CONTEXT, EXPERT, PARAMETER = range(3)
"""Order of the kinds of crossing traffic in ``Arrays.cross_pairs``."""
CATEGORIES: Final = ("forward", "backward", "weights")
"""Kinds of event; where backwards are split, ``backward`` is the part for activations."""
ROUNDING: Final = 1e-12
"""Share of a step below which a difference of times is floating point's, not the schedule's."""


def critical_cell(times: PlacedTimes) -> tuple[int, int]:
    """(replica, pipeline rank) whose reduction ends last."""
    cell = np.unravel_index(int((times.end_s + times.reduce_s).argmax()), times.end_s.shape)
    return int(cell[0]), int(cell[1])


def time_breakdown(candidate: Candidate, times: PlacedTimes) -> TimeBreakdown:
    """Parts of the step on the busiest rank of the replica that ends last; the rest it waits for the others.

    The first rank ends last, but may have few layers: its idle time would hide what the step is made of.
    """
    _, work_s = micro_batch_s(candidate, times)
    return rank_breakdowns(candidate, times)[int(work_s.argmax())]


def micro_batch_s(candidate: Candidate, times: PlacedTimes) -> tuple[int, FloatArray]:
    """The replica that ends last, and the seconds of one micro-batch on each of its pipeline ranks (P,)."""
    replica, _ = critical_cell(times)
    work_s = times.duration_s[replica].sum(axis=0).reshape(-1, candidate.placement.schedule.pipeline).sum(axis=0)
    return replica, work_s


def rank_breakdowns(candidate: Candidate, times: PlacedTimes) -> tuple[TimeBreakdown, ...]:
    """Parts of the step on each pipeline rank of the replica that ends last; those of each add up to the step.

    Idle time is split by simulating with free transfers.  A slow node's extra time counts as compute.
    """
    schedule = candidate.placement.schedule
    replica, last = critical_cell(times)
    free = simulate(schedule, times.duration_s[replica], np.zeros_like(times.delay_s[replica]))
    free_end_s = float(free[schedule.last].max())
    return tuple(
        _rank_breakdown(candidate, times, rank, replica, last, free_end_s) for rank in range(schedule.pipeline)
    )


def _rank_breakdown(
    candidate: Candidate, times: PlacedTimes, rank: int, replica: int, last: int, free_end_s: float
) -> TimeBreakdown:
    """The parts on ``rank``; ``last`` is the one that ends last, at ``free_end_s`` if transfers took no time."""
    arrays, schedule, costs = candidate.placement.arrays, candidate.placement.schedule, candidate.costs
    chunks = slice(rank, None, schedule.pipeline)
    rounds = schedule.micro_batches
    crossing = [
        rounds * float(arrays.cross_count[kind][:, chunks].sum(axis=1) @ times.crossing_s[kind, replica, :, rank])
        for kind in (CONTEXT, EXPERT, PARAMETER)
    ]
    tensor = rounds * float(costs.tensor_s[0, chunks].sum())
    context = rounds * float(costs.context_s[0, chunks].sum()) + crossing[CONTEXT]
    expert = rounds * float(costs.expert_s[0, chunks].sum()) + crossing[EXPERT]
    busy = rounds * float(times.duration_s[replica, :, chunks].sum())
    end = float(times.end_s[replica].max())
    bubble = _rest(free_end_s, busy)
    optimizer, offload = float(arrays.optimizer_s[last]), float(costs.offload_s[0, last])
    return TimeBreakdown(
        step_s=times.step_s,
        compute_s=busy - tensor - context - expert - crossing[PARAMETER],
        tensor_s=tensor,
        context_s=context,
        expert_s=expert,
        pipeline_bubble_s=bubble,
        pipeline_transfer_s=_rest(end, busy, bubble),
        data_exposed_s=_rest(times.step_s, end, optimizer) + crossing[PARAMETER],
        optimizer_s=optimizer - offload,
        offload_s=offload,
    )


def _rest(whole: float, *parts: float) -> float:
    """``whole`` less its parts, exactly zero where only rounding is left."""
    rest = whole - sum(parts)
    return 0.0 if abs(rest) < ROUNDING * whole else rest


def timeline(candidate: Candidate, times: PlacedTimes) -> tuple[TimelineEvent, ...]:
    """Every event of the pipeline on the replica that ends last, and what follows on each of its ranks."""
    schedule = candidate.placement.schedule
    replica, _ = critical_cell(times)
    delay_s = times.delay_s[replica]
    ends = simulate(schedule, times.duration_s[replica], delay_s)
    send = schedule.events.send
    ends -= np.where(send >= 0, delay_s.reshape(-1)[send], 0.0)
    events = []
    for index, end in enumerate(ends.tolist()):
        kind, chunk = int(schedule.events.kind[index]), int(schedule.events.chunk[index])
        category = CATEGORIES[kind]
        virtual = f" of virtual stage {chunk // schedule.pipeline}" if schedule.virtual > 1 else ""
        duration = float(times.duration_s[replica, kind, chunk])
        events.append(
            TimelineEvent(
                name=f"{category} {int(schedule.micro_batch[index])}{virtual}",
                category=category,
                replica=replica,
                track=int(schedule.rank[index]),
                start_s=end - duration,
                duration_s=duration,
            )
        )
    return (*events, *_closing_events(candidate, times, replica))


def _closing_events(candidate: Candidate, times: PlacedTimes, replica: int) -> list[TimelineEvent]:
    """Exposed reduction, optimizer step and exposed gather of every rank; nothing of no length."""
    reduced = float((times.end_s.max(axis=0) + times.reduce_s).max())
    events = []
    for rank, optimizer in enumerate(candidate.placement.arrays.optimizer_s.tolist()):
        spans = [
            ("gradient reduction", "reduce", float(times.end_s[:, rank].max()), float(times.reduce_s[rank])),
            ("optimizer step", "optimizer", reduced, optimizer),
            ("parameter gather", "gather", reduced + optimizer, float(times.gather_s[rank])),
        ]
        events += [
            TimelineEvent(name, category, replica, rank, start, duration)
            for name, category, start, duration in spans
            if duration > 0
        ]
    return events
