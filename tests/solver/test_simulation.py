"""The compiled simulation against a plain one, known closed forms, and critical paths as lower bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.candidates import FloatArray
from solver.pipeline.schedule import Schedule, build_schedule
from solver.pipeline.simulation import critical_path, simulate
from tests.solver import naive_schedule
from tests.solver.test_schedule import SIZES, Sizes, schedule_of

SEEDS = st.integers(0, 2**32 - 1)


def random_inputs(schedule: Schedule, seed: int) -> tuple[FloatArray, FloatArray]:
    """Durations (2, chunks) and delays (2, pipeline) between 0.1 and 1, some delays nil."""
    random = np.random.default_rng(seed)
    duration = random.uniform(0.1, 1.0, (2, schedule.pipeline * schedule.virtual))
    delay = random.uniform(0.1, 1.0, (2, schedule.pipeline)) * (random.random((2, schedule.pipeline)) < 0.7)
    return duration, delay


@settings(max_examples=30)
@given(SIZES, SEEDS, st.booleans())
def test_every_event_ends_when_the_plain_simulation_says(sizes: Sizes, seed: int, blocking: bool) -> None:
    """Event by event, on 1F1B and interleaved schedules with unequal stages and links."""
    schedule = schedule_of(sizes, blocking=blocking)
    duration, delay = random_inputs(schedule, seed)
    expected = naive_schedule.event_ends(
        *sizes[:3],
        lambda kind, chunk: float(duration["FB".index(kind), chunk]),
        lambda kind, rank: float(delay["FB".index(kind), rank]),
        group=sizes[3],
        blocking=blocking,
    )
    ends = simulate(schedule, duration, delay)
    for index, end in enumerate(ends):
        kind = "FB"[int(schedule.events.kind[index])]
        event = (kind, int(schedule.events.chunk[index]), int(schedule.micro_batch[index]))
        assert end == pytest.approx(expected[event], rel=1e-12)


@pytest.mark.parametrize("pipeline", [1, 2, 4, 7])
@pytest.mark.parametrize("micro_batches", [1, 3, 8])
def test_equal_stages_take_the_known_number_of_slots(pipeline: int, micro_batches: int) -> None:
    """1F1B of equal stages without transfers takes m + p - 1 slots of one forward and one backward."""
    schedule = build_schedule(pipeline, 1, micro_batches)
    duration = np.stack([np.full(pipeline, 1.0), np.full(pipeline, 2.0)])
    ends = simulate(schedule, duration, np.zeros((2, pipeline)))
    assert ends.max() == pytest.approx(3.0 * (micro_batches + pipeline - 1))


@pytest.mark.parametrize("virtual", [2, 3, 4])
@pytest.mark.parametrize("groups", [2, 3])
def test_interleaving_divides_the_bubble(virtual: int, groups: int) -> None:
    """Equal chunks without transfers: m v + p - 1 slots of a chunk (arXiv 2104.04473, section 2.2)."""
    pipeline = 4
    schedule = build_schedule(pipeline, virtual, pipeline * groups)
    duration = np.stack([np.full(pipeline * virtual, 1.0), np.full(pipeline * virtual, 2.0)])
    ends = simulate(schedule, duration, np.zeros((2, pipeline)))
    assert ends.max() == pytest.approx(3.0 * (pipeline * groups * virtual + pipeline - 1))


@settings(max_examples=30)
@given(SIZES, SEEDS)
def test_waiting_for_sends_ends_nothing_sooner(sizes: Sizes, seed: int) -> None:
    """So that whatever bounds a schedule of mere delays bounds this one, too."""
    schedule, waiting = schedule_of(sizes), schedule_of(sizes, blocking=True)
    duration, delay = random_inputs(schedule, seed)
    assert (simulate(waiting, duration, delay) >= simulate(schedule, duration, delay) * (1 - 1e-12)).all()


@settings(max_examples=30)
@given(SIZES, SEEDS, SEEDS, st.booleans())
def test_a_critical_path_is_the_end_and_bounds_all_others(
    sizes: Sizes, seed: int, other: int, blocking: bool
) -> None:
    """Summed at its own inputs the path gives the end; at any others it gives no more than theirs."""
    schedule = schedule_of(sizes, blocking=blocking)
    duration, delay = random_inputs(schedule, seed)
    ends = simulate(schedule, duration, delay)
    changed_duration, changed_delay = random_inputs(schedule, other)
    changed = simulate(schedule, changed_duration, changed_delay)
    for event in schedule.last:
        work, hops = critical_path(schedule, ends, delay, int(event))
        assert (work * duration).sum() + (hops * delay).sum() == pytest.approx(ends[event], rel=1e-12)
        path = (work * changed_duration).sum() + (hops * changed_delay).sum()
        assert path <= changed[event] * (1 + 1e-12)
