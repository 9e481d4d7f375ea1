"""The period program against the growth of the simulation, and the bounds of the whole step against both."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from cluster_models.training.interleaving import micro_batch_group
from solver.candidates import FloatArray
from solver.degrees.pricing import _rank_ends as optimistic_rank_ends
from solver.ilp import ModelBuilder, solve_relaxation
from solver.pipeline import period as period_module
from solver.pipeline.period import (
    Duration,
    Waits,
    _add_waits,
    add_period_bound,
    least_period_s,
    least_step_s,
    period_waits,
    slots_of_period,
    steady_periods,
)
from solver.pipeline.schedule import Schedule, build_schedule
from solver.pipeline.simulation import simulate

SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.one_of(
    st.tuples(st.integers(1, 16), st.just(1)),
    st.tuples(st.integers(2, 8), st.integers(2, 8)),
    st.tuples(st.integers(2, 16), st.integers(2, 4)),
)
"""(pipeline, virtual)."""
SMALL_SHAPES = st.tuples(st.integers(1, 7), st.integers(1, 5)).filter(lambda shape: shape[0] > 1 or shape[1] == 1)


def stages_of(shape: tuple[int, int], seed: int, *, wild: bool = False) -> tuple[FloatArray, FloatArray]:
    """Unequal stages and links: durations (2, C) and delays (2, P); ``wild`` ones differ by orders of magnitude."""
    pipeline, virtual = shape
    random = np.random.default_rng(seed)
    forward = random.uniform(0.8, 1.2, pipeline * virtual)
    duration = np.stack([forward, forward * random.uniform(1.7, 2.3, pipeline * virtual)])
    delay = random.uniform(0.0, 0.8, (2, pipeline)) * random.choice([0.0, 0.1, 1.0, 5.0])
    if wild:
        duration = duration * random.lognormal(0.0, random.choice([0.3, 1.0, 3.0]), duration.shape)
        delay = delay * random.lognormal(0.0, 1.0, delay.shape)
    return duration, delay


def pipeline_period(duration_s: FloatArray, delay_s: FloatArray, *, blocking: bool = False) -> float:
    """Seconds per period: per micro-batch under 1F1B, per ``P`` micro-batches under interleaved 1F1B.

    ``duration_s`` (2, C) and ``delay_s`` (2, P) as for ``solver.pipeline.simulation.simulate``: the delay of a
    backward belongs to the rank that sends it.
    """
    builder = ModelBuilder()
    period = int(builder.add_columns(1, cost=1.0)[0])
    duration: list[list[Duration]] = [[(float(value), ()) for value in way] for way in duration_s]
    delay: list[list[Duration]] = [[(float(value), ()) for value in way] for way in delay_s]
    ranks = len(delay_s[0])
    waits = period_waits(ranks, len(duration_s[0]) // ranks, blocking=blocking)
    _add_waits(builder, waits, period, duration, delay)
    return solve_relaxation(builder.build()).objective


def last_backward_s(schedule: Schedule, duration: FloatArray, delay: FloatArray) -> float:
    """End of the last backward on the first rank."""
    return float(simulate(schedule, duration, delay)[schedule.last[0]])


def micro_batches_of(shape: tuple[int, int], rounds: int) -> int:
    """Micro-batches of ``rounds`` periods."""
    return rounds * (1 if shape[1] == 1 else shape[0])


def steady_starts(
    shape: tuple[int, int], duration: FloatArray, delay: FloatArray, period_s: float, *, blocking: bool = False
) -> FloatArray:
    """Earliest starts of a steady schedule whose first forward on rank 0 starts at 0 (Bellman-Ford)."""
    waits = period_waits(*shape, blocking=blocking)
    seconds = wait_seconds(waits, duration, delay)
    start = np.full(waits.events, -np.inf)
    start[0] = 0.0
    for _ in range(waits.events + 1):
        before = start.copy()
        np.maximum.at(start, waits.later, before[waits.earlier] + seconds - waits.periods * period_s)
        if np.allclose(before, start, rtol=1e-12, atol=1e-12 * period_s):
            break
    return start


def critical_cycle_periods(shape: tuple[int, int], duration: FloatArray, delay: FloatArray, period_s: float) -> int:
    """Periods that a cycle without slack spans."""
    waits = period_waits(*shape)
    start = steady_starts(shape, duration, delay, period_s)
    slack = (
        start[waits.later] + waits.periods * period_s - start[waits.earlier] - wait_seconds(waits, duration, delay)
    )
    tight = slack < 1e-9 * period_s
    edges = zip(waits.earlier[tight], waits.later[tight], waits.periods[tight], strict=True)
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_weighted_edges_from((int(a), int(b), int(n)) for a, b, n in edges)
    return sum(int(graph[a][b]["weight"]) for a, b in nx.find_cycle(graph))


def wait_seconds(waits: Waits, duration: FloatArray, delay: FloatArray) -> FloatArray:
    """Seconds between the starts of the two events of each wait."""
    return duration[waits.way, waits.chunk] + np.where(waits.hop >= 0, delay[waits.way, waits.hop], 0.0)


@settings(max_examples=20)
@given(SHAPES, st.booleans())
def test_waits_are_those_of_the_schedule(shape: tuple[int, int], blocking: bool) -> None:
    """In the middle of a long schedule every event waits for what the periodic graph says, a hop or none away."""
    pipeline, virtual = shape
    slots = slots_of_period(*shape)
    schedule = build_schedule(pipeline, virtual, micro_batches_of(shape, 6 if virtual > 1 else 5 * pipeline))
    events = schedule.events
    way, hops = events.kind, np.where(events.hop >= 0, events.hop % pipeline, -1)
    number = np.zeros(len(way), dtype=np.int64)
    for rank in range(pipeline):
        for direction in range(2):
            own = (schedule.rank == rank) & (way == direction)
            number[own] = np.arange(own.sum())
    middle = 3 if virtual > 1 else 3 * pipeline
    found = set()
    for event in np.flatnonzero(number // slots == middle):
        for earlier, hop in ((events.previous[event], -1), (events.feed[event], hops[event])):
            if earlier >= 0:
                later = (int(way[event]), int(schedule.rank[event]), int(number[event]))
                found.add((*later, int(earlier), int(events.chunk[earlier]), int(hop)))
    index = {
        (int(w), int(r), int(n)): e for e, (w, r, n) in enumerate(zip(way, schedule.rank, number, strict=True))
    }
    waits = period_waits(*shape)
    expected = set()
    for later, earlier, periods, kind, chunk, hop in zip(
        *(part.tolist() for part in (waits.later, waits.earlier, waits.periods, waits.way, waits.chunk, waits.hop)),
        strict=True,
    ):
        after = (*divmod(later // slots, pipeline), middle * slots + later % slots)
        before = (*divmod(earlier // slots, pipeline), (middle - periods) * slots + earlier % slots)
        assert before[0] == kind
        expected.add((*after, index[before], chunk, hop))
    assert found == expected
    sending = period_waits(*shape, blocking=True)
    ends = np.where(sending.way == 0, sending.chunk == pipeline * virtual - 1, sending.chunk == 0)
    assert (sending.hop == np.where(ends, -1, sending.chunk % pipeline)).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "shape",
    [(1, 1), (2, 1), (5, 1), (8, 1), (16, 1), (2, 2), (2, 8), (3, 3), (4, 2), (6, 5), (8, 4), (16, 2), (16, 8)],
)
def test_period_is_the_simulations_growth(shape: tuple[int, int], seed: int) -> None:
    """After a while the step grows by exactly a period for each further one, to a millionth.

    A critical cycle may span several periods, up to twice the ranks; the growth repeats itself with it.
    """
    duration, delay = stages_of(shape, seed)
    period_s = pipeline_period(duration, delay)
    common = critical_cycle_periods(shape, duration, delay, period_s)
    settled = 20 if shape[1] > 1 else 20 * shape[0]
    schedules = [build_schedule(*shape, micro_batches_of(shape, count)) for count in (settled, settled + common)]
    before, after = (last_backward_s(schedule, duration, delay) for schedule in schedules)
    assert (after - before) / common == pytest.approx(period_s, rel=1e-6)


@settings(max_examples=30)
@given(SMALL_SHAPES, SEEDS, st.integers(0, 12), st.booleans(), st.booleans(), st.booleans())
def test_a_step_lies_between_its_two_ends(
    shape: tuple[int, int], seed: int, more: int, wild: bool, blocking: bool, averaged: bool
) -> None:
    """A round trip and the periods after it from below; the steady schedule from the first event on from above.

    The lower end is a row of the placement program, so it must never exceed the simulation (docs/pipeline.md).
    """
    pipeline, virtual = shape
    duration, delay = stages_of(shape, seed, wild=wild)
    periods = more + (pipeline if virtual == 1 else 2)
    schedule = build_schedule(*shape, micro_batches_of(shape, periods), blocking=blocking)
    simulated = last_backward_s(schedule, duration, delay)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(period_module, "MOST_EVENTS_OF_A_PERIOD", 0 if averaged else 10_000)
        lower = bound_of_program(schedule, duration, delay)
    assert lower <= simulated * (1 + 1e-7)
    period_s = pipeline_period(duration, delay, blocking=blocking)
    start = steady_starts(shape, duration, delay, period_s, blocking=blocking)
    last = (pipeline + 1) * slots_of_period(*shape) - 1
    latency = start[last] + duration[1, 0]
    assert simulated <= (latency + (periods - 1) * period_s) * (1 + 1e-7)


def bound_of_program(schedule: Schedule, duration: FloatArray, delay: FloatArray) -> float:
    """The last backward on rank 0 by the rows, when everything is known."""
    builder = ModelBuilder()
    end = int(builder.add_columns(1, cost=1.0)[0])
    builder.add_row([(end, 1.0)], lower=0.0)
    add_period_bound(builder, end=end, schedule=schedule, duration=constants(duration), delay=constants(delay))
    return solve_relaxation(builder.build()).objective


def constants(values: FloatArray) -> list[list[Duration]]:
    """Expressions without columns."""
    return [[(float(value), ()) for value in way] for way in values]


@settings(max_examples=30)
@given(SMALL_SHAPES, SEEDS, st.booleans(), st.booleans())
def test_the_closed_form_never_exceeds_the_period(
    shape: tuple[int, int], seed: int, wild: bool, blocking: bool
) -> None:
    """Several pipelines at once; under 1F1B it is the period, where both ways of a hop take alike."""
    cases = [stages_of(shape, seed + more, wild=wild) for more in range(3)]
    hops = np.array([np.minimum(delay[0], np.roll(delay[1], -1)) for _, delay in cases])
    least = least_period_s(
        np.array([duration[0] for duration, _ in cases]), np.array([duration[1] for duration, _ in cases]), hops
    )
    for (duration, delay), bound, hop in zip(cases, least, hops, strict=True):
        assert bound <= pipeline_period(duration, delay, blocking=blocking) * (1 + 1e-7)
        if shape[1] == 1:
            alike = np.stack([hop, np.roll(hop, 1)])
            assert bound == pytest.approx(pipeline_period(duration, alike), rel=1e-6)


@settings(max_examples=30)
@given(SMALL_SHAPES, SEEDS, st.booleans(), st.booleans())
def test_no_step_ends_before_the_closed_form(shape: tuple[int, int], seed: int, wild: bool, blocking: bool) -> None:
    """One pipeline with different numbers of micro-batches at once; without a whole period it says nothing."""
    duration, delay = stages_of(shape, seed, wild=wild)
    delay[1] = np.roll(delay[0], 1)
    micro_batches = np.array([micro_batches_of(shape, rounds) for rounds in (1, 2, 3, 5, 9, 20)])
    every = len(micro_batches)
    least = least_step_s(
        np.tile(duration[0], (every, 1)),
        np.tile(duration[1], (every, 1)),
        np.tile(delay[0], (every, 1)),
        micro_batches,
    )
    for count, bound in zip(micro_batches.tolist(), least, strict=True):
        simulated = last_backward_s(build_schedule(*shape, count, blocking=blocking), duration, delay)
        assert bound <= simulated * (1 + 1e-9)
    assert (least > 0).tolist() == (steady_periods(*shape, micro_batches) >= 0).tolist()


@settings(max_examples=30)
@given(SMALL_SHAPES.filter(lambda shape: shape[0] > 1), SEEDS, st.integers(0, 40), st.booleans())
def test_no_bound_exceeds_a_step_whatever_its_groups(
    shape: tuple[int, int], seed: int, more: int, wild: bool
) -> None:
    """Any number of micro-batches: bounds of a candidate and of the placement program stay below the schedule."""
    duration, delay = stages_of(shape, seed, wild=wild)
    delay[1] = np.roll(delay[0], 1)
    micro_batches = shape[0] + more
    group = micro_batch_group(DEFAULT_FRAMEWORK, shape[0], micro_batches)
    schedule = build_schedule(*shape, micro_batches, group=group)
    ends = simulate(schedule, duration, delay)[schedule.last]
    hop = delay[:1] * (np.arange(shape[0]) < shape[0] - (shape[1] == 1))
    least = optimistic_rank_ends(duration[:1], duration[1:], hop, np.array([micro_batches]))
    assert (least[0] <= ends * (1 + 1e-9)).all()
    assert bound_of_program(schedule, duration, delay) <= ends[0] * (1 + 1e-7)


def test_groups_larger_than_the_pipeline_would_break_the_period_of_a_round() -> None:
    """Nine micro-batches on four ranks are not two rounds and a bit: the round's bound would exceed their step."""
    assert steady_periods(4, 2, np.array([8, 9, 12, 13])).tolist() == [0, -1, 1, -1]


@pytest.mark.parametrize(("closing_only", "least", "mean"), [(False, 0.71, 0.95), (True, 0.33, 0.5)])
def test_how_near_the_closed_form_comes(closing_only: bool, least: float, mean: float) -> None:
    """Interleaved, transfers of up to four forwards; or a single slow link, from the last rank to the first."""
    shares = []
    for shape in ((2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2), (4, 3), (5, 2), (5, 5)):
        for seed in range(6):
            duration, _ = stages_of(shape, seed)
            hop = np.random.default_rng(seed).uniform(0.0, 4.0, shape[0])
            if closing_only:
                hop = np.append(hop[:-1] / 8, 20.0)
            period_s = pipeline_period(duration, np.stack([hop, np.roll(hop, 1)]))
            shares.append(least_period_s(duration[:1], duration[1:], hop[None])[0] / period_s)
    assert min(shares) >= least
    assert np.mean(shares) >= mean
    assert max(shares) <= 1 + 1e-7


def test_a_lone_rank_repeats_its_own_work() -> None:
    """Without a pipeline the period is forward plus backward."""
    assert pipeline_period(np.array([[1.0], [2.0]]), np.zeros((2, 1))) == pytest.approx(3.0)


def test_two_ranks_wait_for_their_round_trip() -> None:
    """Two ranks keep two micro-batches under way: a slow link makes each wait for half the round trip."""
    duration, delay = np.array([[1.0, 1.0], [2.0, 2.0]]), np.full((2, 2), 4.0)
    assert pipeline_period(duration, delay) == pytest.approx((1 + 4 + 1 + 2 + 4 + 2) / 2)


def test_three_rounds_share_two_ways_through_the_chunks() -> None:
    """Two ranks, two virtual stages, slow links: there and back, and from the last virtual stage on once more.

    In three rounds 3 + 3 and 1 + 3 transfers, 4 + 2 forwards of 1 s and 4 + 4 backwards of 2 s follow each other.
    """
    duration, delay = np.array([[1.0] * 4, [2.0] * 4]), np.full((2, 2), 100.0)
    expected = (10 * 100 + 6 * 1 + 8 * 2) / 3
    assert pipeline_period(duration, delay) == pytest.approx(expected)
    assert least_period_s(duration[:1], duration[1:], delay[:1])[0] == pytest.approx(expected)


def test_free_links_leave_the_busiest_rank() -> None:
    """Four micro-batches through all chunks of a rank each round."""
    duration = np.array([[1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0]] * 2)
    assert pipeline_period(duration, np.zeros((2, 4))) == pytest.approx(4 * (2 + 2) * 2)


@pytest.mark.parametrize(("shape", "micro_batches", "periods"), [((4, 1), 12, 8), ((4, 2), 12, 1), ((4, 2), 4, -1)])
def test_periods_of_a_step(shape: tuple[int, int], micro_batches: int, periods: int) -> None:
    """Micro-batches beyond one a rank; rounds beyond two, as the warm-up of interleaving is more than a round."""
    assert steady_periods(*shape, micro_batches) == periods
