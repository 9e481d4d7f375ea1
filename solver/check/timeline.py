"""Whether the timeline is a schedule that could run.

Events are told apart by their order on a track, never by their names: one pipeline rank runs its forwards
(and its backwards) in a fixed order, 1F1B by micro-batch and interleaved 1F1B in groups of micro-batches, chunk
after chunk (arXiv 2104.04473, section 2.2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from cluster_models.training.interleaving import micro_batch_group
from cluster_models.training.plan import Degrees, Plan, TimelineEvent
from solver.problem import PlanningProblem

COMPUTE = frozenset({"forward", "backward", "optimizer"})
"""Categories that occupy the GPU; transfers and reductions run beside them."""
TOLERANCE = 1e-6
Events = list[TimelineEvent]
Order = list[tuple[int, int]]


def timeline_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules on times, overlaps, completeness and order that the timeline breaks."""
    if not plan.timeline:
        yield "The plan has no timeline."
        return
    slack = TOLERANCE * max(plan.time.step_s, 0.0)
    tracks: dict[tuple[int, int], Events] = defaultdict(list)
    for event in plan.timeline:
        tracks[event.replica, event.track].append(event)
        if not (event.duration_s >= 0 and event.start_s >= -slack and _end(event) <= plan.time.step_s + slack):
            yield (
                f"Event {event.name} of replica {event.replica}, stage {event.track} runs from "
                f"{event.start_s:.9g} to {_end(event):.9g} s in a step of {plan.time.step_s:.9g} s."
            )
    for events in tracks.values():
        yield from _overlaps(events, slack)
    if plan.configuration.micro_batch < 1:  # reported by the batch rules
        return
    degrees = plan.configuration.degrees
    micro_batches = plan.configuration.micro_batches(problem.workload.global_batch)
    group = micro_batch_group(problem.workload.framework, degrees.pipeline, micro_batches)
    order = _order(degrees.virtual_pipeline, micro_batches, group or max(1, degrees.pipeline))
    for replica in sorted({replica for replica, _ in tracks}):
        yield from _replica_rules(replica, tracks, degrees, order, slack)


def _end(event: TimelineEvent) -> float:
    return event.start_s + event.duration_s


def _overlaps(events: Events, slack: float) -> Iterator[str]:
    busy = sorted((event for event in events if event.category in COMPUTE), key=lambda event: event.start_s)
    for before, after in pairwise(busy):
        if after.start_s < _end(before) - slack:
            yield (
                f"On replica {after.replica}, stage {after.track}, {after.name} starts at "
                f"{after.start_s:.9g} s while {before.name} runs until {_end(before):.9g} s."
            )


def _replica_rules(
    replica: int,
    tracks: dict[tuple[int, int], Events],
    degrees: Degrees,
    order: Order,
    slack: float,
) -> Iterator[str]:
    if not 0 <= replica < degrees.data:
        yield f"The timeline names replica {replica} at data degree {degrees.data}."
    stages = sorted(stage for owner, stage in tracks if owner == replica)
    if stages != list(range(degrees.pipeline)):
        yield f"Replica {replica} has stages {stages} at pipeline degree {degrees.pipeline}."
        return
    forwards = [_of_category(tracks[replica, stage], "forward") for stage in stages]
    backwards = [_of_category(tracks[replica, stage], "backward") for stage in stages]
    for stage in stages:
        counts = len(forwards[stage]), len(backwards[stage])
        if counts != (len(order), len(order)):
            yield (
                f"Replica {replica}, stage {stage} runs {counts[0]} forwards and {counts[1]} backwards "
                f"instead of {len(order)} each."
            )
            return
    yield from _chain_rules(forwards, order, slack)
    yield from _chain_rules(backwards[::-1], order, slack)
    for forward, backward in zip(forwards, backwards, strict=True):
        yield from _pair_rules(forward, backward, order, slack)


def _of_category(events: Events, category: str) -> Events:
    return sorted((event for event in events if event.category == category), key=lambda event: event.start_s)


def _chain_rules(stages: Sequence[Events], order: Order, slack: float) -> Iterator[str]:
    """The i-th pass of a stage needs that of the stage before it, in the direction of the data.

    From the last stage the data goes round to the first one's next chunk.
    """
    needs = [pair for before, after in pairwise(stages) for pair in zip(before, after, strict=True)]
    first = dict(zip(order, stages[0], strict=True))
    for (chunk, micro_batch), source in zip(order, stages[-1], strict=True):
        target = first.get((chunk + 1, micro_batch))
        if target is not None:
            needs.append((source, target))
    for source, target in needs:
        if target.start_s < _end(source) - slack:
            yield _too_early(target, source)


def _pair_rules(forwards: Events, backwards: Events, order: Order, slack: float) -> Iterator[str]:
    """A backward needs the forward of the same micro-batch and chunk on its own GPU."""
    forward_of = dict(zip(order, forwards, strict=True))
    last_chunk = max((chunk for chunk, _ in order), default=0)
    for (chunk, micro_batch), backward in zip(order, backwards, strict=True):
        forward = forward_of.get((last_chunk - chunk, micro_batch))
        if forward is not None and backward.start_s < _end(forward) - slack:
            yield _too_early(backward, forward)


def _order(virtual: int, micro_batches: int, group: int) -> Order:
    """(virtual stage, micro-batch) of every forward of any pipeline rank; backwards count the stages down."""
    return [
        (chunk, micro_batch)
        for first in range(0, micro_batches, group)
        for chunk in range(virtual)
        for micro_batch in range(first, min(first + group, micro_batches))
    ]


def _too_early(event: TimelineEvent, needed: TimelineEvent) -> str:
    return (
        f"Replica {event.replica}: {event.name} on stage {event.track} starts at {event.start_s:.9g} s "
        f"before {needed.name} on stage {needed.track} ends at {_end(needed):.9g} s."
    )
