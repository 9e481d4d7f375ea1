"""Timelines of interleaved and simulated schedules, as the checker reads them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.training.interleaving import micro_batch_group
from cluster_models.training.plan import Degrees, TimelineEvent
from solver.check import check_plan
from solver.check.timeline import timeline_violations
from solver.pipeline.schedule import Schedule, build_schedule, events_of_chunk
from solver.pipeline.simulation import simulate
from tests.solver.hand_made import hand_made_plan, hand_made_problem
from tests.solver.pipeline_orders import Sizes, other_sizes
from tests.solver.problems import DENSE, nodes, planned, problem

PLAN, PROBLEM = hand_made_plan(), hand_made_problem()


def test_interleaved_timelines_are_understood() -> None:
    """Two chunks a rank: the second chunk's forwards come after a group of the first's."""
    configuration = replace(
        PLAN.configuration,
        degrees=replace(PLAN.configuration.degrees, virtual_pipeline=2),
        stage_layers=((1, 1), (1, 1)),
    )
    plan = replace(PLAN, configuration=configuration, timeline=_interleaved_timeline())
    assert check_plan(plan, PROBLEM) == ()
    for name, track, start in (("B1.0", 0, 1.0), ("F1.0", 0, 0.9), ("B0.0", 1, 4.0)):
        moved = tuple(
            replace(event, start_s=start, duration_s=0.01) if (event.name, event.track) == (name, track) else event
            for event in plan.timeline
        )
        found = check_plan(replace(plan, timeline=moved), PROBLEM)
        assert any(f"{name} on stage {track} starts at" in line and "before" in line for line in found), found


def _interleaved_timeline() -> tuple[TimelineEvent, ...]:
    """Two micro-batches, two ranks, two chunks; F 0.5 s and B 1 s a chunk, all forwards first on rank 0."""
    starts = {
        0: {"F0.0": 0, "F0.1": 0.5, "F1.0": 1, "F1.1": 1.5, "B1.0": 3.5, "B1.1": 5, "B0.0": 6, "B0.1": 7},
        1: {"F0.0": 0.5, "F0.1": 1, "F1.0": 1.5, "B1.0": 2, "F1.1": 3, "B1.1": 3.5, "B0.0": 4.5, "B0.1": 6},
    }
    return tuple(
        TimelineEvent(
            name=name,
            category="forward" if name[0] == "F" else "backward",
            replica=replica,
            track=track,
            start_s=start,
            duration_s=0.5 if name[0] == "F" else 1.0,
        )
        for replica in range(2)
        for track, events in starts.items()
        for name, start in events.items()
    )


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 15), st.integers(0, 2**31))
def test_simulated_schedules_are_sound(pipeline: int, virtual: int, micro_batches: int, seed: int) -> None:
    """A simulated step with random durations and transfers breaks no rule of the timeline."""
    virtual = virtual if 1 < pipeline <= micro_batches else 1
    group = micro_batch_group(PROBLEM.workload.framework, pipeline, micro_batches)
    assert _broken_by(build_schedule(pipeline, virtual, micro_batches, group=group), seed) == []


@given(other_sizes(), st.integers(0, 2**31))
def test_other_schedules_are_sound(sizes: Sizes, seed: int) -> None:
    """Zero-bubble, V-shaped and breadth-first ones, whose turns the checker counts by itself."""
    order, pipeline, virtual, micro_batches = sizes
    schedule = build_schedule(pipeline, virtual, micro_batches, order=order)
    assert _broken_by(schedule, seed) == []


@given(other_sizes(), st.integers(0, 2**31), st.integers(0, 10**6))
def test_an_event_of_another_schedule_that_comes_too_early_is_found(sizes: Sizes, seed: int, which: int) -> None:
    """Whatever event waits for another one is moved to the start of the step, where its rank has room for it."""
    order, pipeline, virtual, micro_batches = sizes
    schedule = build_schedule(pipeline, virtual, micro_batches, order=order)
    waits = np.flatnonzero((schedule.events.feed >= 0) & (schedule.micro_batch == 0))
    assert any("before" in line for line in _broken_by(schedule, seed, int(waits[which % len(waits)])))


def _broken_by(schedule: Schedule, seed: int, early: int = -1) -> list[str]:
    """Rules that a schedule under random durations and transfers breaks, one event moved to the start if given."""
    random, pipeline = np.random.default_rng(seed), schedule.pipeline
    duration_s = random.uniform(0.1, 2.0, (events_of_chunk(schedule.order), pipeline * schedule.virtual))
    ends = simulate(schedule, duration_s, random.uniform(0.0, 1.0, (2, pipeline)))
    chunk, kind = schedule.events.chunk, schedule.events.kind
    lasting = duration_s[kind, chunk]
    if early >= 0:
        ends[early], lasting[early] = 0.0, 0.0
    timeline = tuple(
        TimelineEvent(
            name=f"{schedule.micro_batch[event]}.{chunk[event]}",
            category=("forward", "backward", "weights")[kind[event]],
            replica=0,
            track=int(schedule.rank[event]),
            start_s=float(ends[event] - lasting[event]),
            duration_s=float(lasting[event]),
        )
        for event in range(len(ends))
    )
    degrees = Degrees(pipeline=pipeline, virtual_pipeline=schedule.virtual)
    configuration = replace(PLAN.configuration, degrees=degrees, micro_batch=1, schedule=schedule.order)
    time = replace(PLAN.time, step_s=float(ends.max()))
    workload = replace(PROBLEM.workload, global_batch=schedule.micro_batches)
    plan = replace(PLAN, configuration=configuration, timeline=timeline, time=time)
    return list(timeline_violations(plan, replace(PROBLEM, workload=workload)))


def test_a_plan_with_micro_batches_that_ranks_do_not_divide_holds_throughout() -> None:
    """Eight micro-batches on three ranks pass in groups of four; whole groups of three would not be a schedule."""
    model = replace(DENSE, layers=12)
    pinned = {"pipeline": 3, "virtual_pipeline": 2, "micro_batch": 1}
    asked = problem(nodes(3, gpus=1), model=model, pinned=pinned)
    plan = planned(asked)
    assert plan.configuration.micro_batches(asked.workload.global_batch) == 8
    assert check_plan(plan, asked) == ()
    assert plan.certificate.gap <= 0.01
    older = replace(asked.workload.framework, megatron_core=9)
    found = check_plan(plan, replace(asked, workload=replace(asked.workload, framework=older)))
    assert any("divisible by the pipeline degree, but 8 is not by 3" in line for line in found)
    order = sorted((event for event in plan.timeline if event.track == 0), key=lambda event: event.start_s)
    forwards = [event.name.split()[:2] for event in order if event.category == "forward"]
    assert [int(number) for _, number in forwards] == [0, 1, 2, 3] * 2 + [4, 5, 6, 7] * 2
