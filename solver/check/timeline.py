"""Whether the timeline is a schedule that could run.

Events are told apart by their order on a track, never by their names: one pipeline rank runs its forwards (and its
backwards, and what it computes apart for gradients of weights) in a fixed order, which ``solver.check.turns``
derives.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from cluster_models.training.plan import Configuration, Plan, TimelineEvent
from solver.check.turns import Tasks, turns_of
from solver.problem import PlanningProblem

COMPUTE = frozenset({"forward", "backward", "weights", "optimizer"})
"""Categories that occupy the GPU; transfers and reductions run beside them."""
TOLERANCE = 1e-6
Events = list[TimelineEvent]
Found = dict[tuple[int, int], TimelineEvent]
"""Events of one category by stage and micro-batch."""


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
    for replica in sorted({replica for replica, _ in tracks}):
        yield from _replica_rules(replica, tracks, plan.configuration, problem, slack)


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
    configuration: Configuration,
    problem: PlanningProblem,
    slack: float,
) -> Iterator[str]:
    degrees = configuration.degrees
    if not 0 <= replica < degrees.data:
        yield f"The timeline names replica {replica} at data degree {degrees.data}."
    ranks = sorted(rank for owner, rank in tracks if owner == replica)
    if ranks != list(range(degrees.pipeline)):
        yield f"Replica {replica} has stages {ranks} at pipeline degree {degrees.pipeline}."
        return
    found: dict[str, Found] = defaultdict(dict)
    for rank in ranks:
        turns = turns_of(configuration, problem.workload, rank)
        if wrong := _counts_wrong(tracks[replica, rank], turns):
            yield f"Replica {replica}, stage {rank} {wrong}."
            return
        for category, tasks in turns.items():
            found[category] |= zip(tasks, _of_category(tracks[replica, rank], category), strict=True)
    for source, target in _needs(found, degrees.pipeline * degrees.virtual_pipeline - 1):
        if target.start_s < _end(source) - slack:
            yield _too_early(target, source)


def _counts_wrong(events: Events, turns: dict[str, Tasks]) -> str:
    """How many events of its categories a rank has otherwise than it should; empty where they are right."""
    counts = [len(_of_category(events, category)) for category in turns]
    expected = len(turns["forward"])
    if all(count == expected for count in counts):
        return ""
    plural = {"forward": "forwards", "backward": "backwards"}
    words = [f"{count} {plural.get(name, name)}" for count, name in zip(counts, turns, strict=True)]
    return f"runs {' and '.join(words)} instead of {expected} each"


def _of_category(events: Events, category: str) -> Events:
    return sorted((event for event in events if event.category == category), key=lambda event: event.start_s)


def _needs(found: dict[str, Found], last: int) -> Iterator[tuple[TimelineEvent, TimelineEvent]]:
    """Order that events must keep: stage after stage there and back, a backward after its own forward.

    Gradients of weights follow the backward that they belong to.
    """
    forwards, backwards = found["forward"], found["backward"]
    for (stage, micro_batch), event in forwards.items():
        yield event, backwards[stage, micro_batch]
        if stage < last:
            yield event, forwards[stage + 1, micro_batch]
            yield backwards[stage + 1, micro_batch], backwards[stage, micro_batch]
    for task, event in found["weights"].items():
        yield backwards[task], event


def _too_early(event: TimelineEvent, needed: TimelineEvent) -> str:
    return (
        f"Replica {event.replica}: {event.name} on stage {event.track} starts at {event.start_s:.9g} s "
        f"before {needed.name} on stage {needed.track} ends at {_end(needed):.9g} s."
    )
