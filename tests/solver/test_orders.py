"""Zero-bubble, V-shaped and breadth-first schedules: PyTorch's orders, published bubbles, a second simulation."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.training.schedules import V_STAGES, PipelineSchedule, in_model_order, model_columns, rows_of
from solver.candidates import FloatArray
from solver.pipeline.schedule import Schedule, build_schedule, events_of_chunk
from solver.pipeline.simulation import critical_path, simulate
from tests.solver.pipeline_orders import Clocks, Sizes, actions, other_sizes, printed, stages_of

GPIPE, ZERO_BUBBLE = PipelineSchedule.GPIPE, PipelineSchedule.ZERO_BUBBLE
ZB_V, DUALPIPE_V = PipelineSchedule.ZB_V, PipelineSchedule.DUALPIPE_V
SEEDS = st.integers(0, 2**32 - 1)


def schedule_of(sizes: Sizes) -> Schedule:
    """The event graph of these sizes."""
    order, pipeline, virtual, micro_batches = sizes
    return build_schedule(pipeline, virtual, micro_batches, order=order)


def random_inputs(schedule: Schedule, seed: int) -> tuple[FloatArray, FloatArray]:
    """Durations (kinds, chunks) and delays (2, pipeline) between 0.1 and 1, some delays nil."""
    random, ranks = np.random.default_rng(seed), schedule.pipeline
    duration = random.uniform(0.1, 1.0, (events_of_chunk(schedule.order), ranks * schedule.virtual))
    return duration, random.uniform(0.1, 1.0, (2, ranks)) * (random.random((2, ranks)) < 0.7)


@pytest.mark.parametrize(
    ("sizes", "first", "second"),
    [
        ((GPIPE, 2, 1, 2), "0F0 0F1 0I0 0I1", "1F0 1F1 1I0 1I1"),
        ((GPIPE, 2, 2, 2), "0F0 0F1 2F0 2F1 2I1 2I0 0I1 0I0", "1F0 1F1 3F0 3F1 3I1 3I0 1I1 1I0"),
        (
            (ZERO_BUBBLE, 2, 2, 2),
            "0F0 0F1 2F0 2F1 2I0 2W0 2I1 2W1 0I0 0W0 0I1 0W1",
            "1F0 1F1 3F0 3I0 3F1 3I1 3W0 1I0 3W1 1I1 1W0 1W1",
        ),
        (
            (ZB_V, 2, 2, 4),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3",
            "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3",
        ),
        (
            (DUALPIPE_V, 2, 2, 4),
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1) (3F2;0B0) 3B2 (3F3;0B1) 3B3 0I2 0W2 0I3 0W3",
            "1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0) (1F3;2B1) (2F3;1B1) 2B2 1B2 2I3 1I3 2W3 1W3",
        ),
    ],
)
def test_two_ranks_work_in_pytorchs_order(sizes: Sizes, first: str, second: str) -> None:
    """As PyTorch 2.11 prints the orders of two ranks; a whole backward is I where nothing is ever split."""
    assert printed(sizes, 0) == first
    assert printed(sizes, 1) == second


@given(other_sizes())
def test_every_stage_meets_every_micro_batch_once(sizes: Sizes) -> None:
    """Forwards, backwards and, where these are split, weights, which follow the backward that they belong to."""
    order, pipeline, _, micro_batches = sizes
    kinds = "FIW" if order.splits_backward else "FI"
    for rank in range(pipeline):
        tasks = [task for action in actions(sizes, rank) for task in action]
        expected = {(kind, s, m): 1 for kind in kinds for s in stages_of(sizes, rank) for m in range(micro_batches)}
        assert Counter(tasks) == expected
        place = {task: number for number, task in enumerate(tasks)}
        assert all(place["I", s, m] < place["W", s, m] for kind, s, m in tasks if kind == "W")
        assert all(place["F", s, m] < place["I", s, m] for kind, s, m in tasks if kind == "F")


@settings(max_examples=40)
@given(other_sizes(), SEEDS)
def test_every_event_ends_when_the_plain_simulation_says(sizes: Sizes, seed: int) -> None:
    """Event by event, with unequal stages and links, there and back on a V."""
    order, pipeline, virtual, _ = sizes
    schedule = schedule_of(sizes)
    duration, delay = random_inputs(schedule, seed)
    columns = model_columns(order, pipeline, virtual)

    expected = Clocks(
        sizes,
        lambda kind, stage: float(duration["FIW".index(kind), columns[stage]]),
        lambda way, rank: float(delay[int(way), rank]),
    ).run()
    ends = simulate(schedule, duration, delay)
    stage_of = {column: stage for stage, column in enumerate(columns)}
    for index, end in enumerate(ends):
        kind, column = int(schedule.events.kind[index]), int(schedule.events.chunk[index])
        task = "FIW"[kind], stage_of[column], int(schedule.micro_batch[index])
        assert end == pytest.approx(expected[task], rel=1e-12)


@given(other_sizes(), SEEDS, SEEDS)
def test_critical_paths_bound_other_times_from_below(sizes: Sizes, seed: int, other: int) -> None:
    """A path is as long as the end it explains, and never longer than the end under other durations and delays."""
    schedule = schedule_of(sizes)
    duration, delay = random_inputs(schedule, seed)
    ends = simulate(schedule, duration, delay)
    event = int(ends.argmax())
    work, hops = critical_path(schedule, ends, delay, event)
    assert (work * duration).sum() + (hops * delay).sum() == pytest.approx(ends[event], rel=1e-9)
    duration, delay = random_inputs(schedule, other)
    assert (work * duration).sum() + (hops * delay).sum() <= simulate(schedule, duration, delay)[event] * (1 + 1e-9)


@pytest.mark.parametrize("pipeline", [2, 4, 6])
@pytest.mark.parametrize(
    ("order", "virtual", "seconds", "bubble"),
    [
        (GPIPE, 1, (1.0, 2.0), (1, 1)),  # arXiv 1811.06965, section 2.3
        (GPIPE, 3, (1.0, 2.0), (1, 1)),
        (ZERO_BUBBLE, 1, (1.0, 1.2, 0.7), (1, 1, -1)),  # arXiv 2401.10241, table 2
        (ZB_V, 2, (1.0, 1.0, 1.0), (1, 0, 0)),  # arXiv 2405.15362: nothing but the way of the first forward
        (DUALPIPE_V, 2, (1.0, 1.0, 1.0), (1, 2, -1)),  # DeepSeek's table: F&B + B - 3 W
    ],
)
def test_equal_stages_have_the_published_bubble(
    pipeline: int, order: PipelineSchedule, virtual: int, seconds: tuple[float, ...], bubble: tuple[int, ...]
) -> None:
    """P - 1 times so many forwards, backwards (or their parts for activations) and weights, without transfers."""
    schedule = schedule_of((order, pipeline, virtual, 4 * pipeline))
    duration = np.outer(seconds, np.ones(pipeline * virtual))
    step = simulate(schedule, duration, np.zeros((2, pipeline))).max()
    work = 4 * pipeline * virtual * sum(seconds)
    assert step == pytest.approx(work + (pipeline - 1) * np.dot(bubble, seconds))


def test_a_v_comes_back_to_the_first_rank() -> None:
    """Rows stand by rank, so that the second virtual stage of a V is turned round; other schedules go on."""
    rows = ((1, 2, 3), (6, 5, 4))
    assert in_model_order(ZB_V, rows) == (1, 2, 3, 4, 5, 6)
    assert rows_of(ZB_V, 3, (1, 2, 3, 4, 5, 6)) == rows
    assert in_model_order(GPIPE, rows) == (1, 2, 3, 6, 5, 4)
    assert rows_of(GPIPE, 3, (1, 2, 3, 6, 5, 4)) == rows


def drawn(sizes: Sizes) -> list[str]:
    """A line for each rank, two letters a unit of time; a whole backward that is never split takes two units."""
    order, pipeline, virtual, _ = sizes
    schedule = schedule_of(sizes)
    seconds = np.ones((3, pipeline * virtual)) if order.splits_backward else np.outer([1, 2], np.ones(pipeline))
    ends = simulate(schedule, seconds, np.zeros((2, pipeline)))
    lines = []
    for rank in range(pipeline):
        line = [" ."] * int(ends[schedule.rank == rank].max())
        for event in np.flatnonzero(schedule.rank == rank).tolist():
            kind, chunk = schedule.events.kind[event], schedule.events.chunk[event]
            name, long = "FBW"[kind], int(seconds[kind, chunk])
            name = name.lower() if chunk >= pipeline else name
            line[int(ends[event]) - long] = f"{name}{schedule.micro_batch[event]}"
            line[int(ends[event]) - long + 1 : int(ends[event])] = ["--"] * (long - 1)
        lines.append(f"    {rank}  {''.join(line)}".rstrip())
    return lines


@pytest.mark.parametrize("order", list(PipelineSchedule))
def test_the_manual_draws_what_is_simulated(order: PipelineSchedule) -> None:
    """Four ranks, eight micro-batches (docs/schedules.md)."""
    drawings = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()
    assert "\n".join(drawn((order, 4, V_STAGES if order.is_v_shaped else 1, 8))) in drawings
