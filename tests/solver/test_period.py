"""The period program against the growth of the simulation, and the formula of the whole step against both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.candidates import FloatArray
from solver.pipeline.period import pipeline_period
from solver.pipeline.schedule import build_schedule
from solver.pipeline.simulation import simulate

STAGES = st.integers(1, 16)
SEEDS = st.integers(0, 2**32 - 1)


def stages_of(ranks: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Unequal stages and links: durations (2, ranks) and delays (2, ranks), each hop's two ways alike or not."""
    random = np.random.default_rng(seed)
    forward = random.uniform(0.8, 1.2, ranks)
    duration = np.stack([forward, forward * random.uniform(1.7, 2.3, ranks)])
    return duration, random.uniform(0.0, 0.8, (2, ranks))


def step_s(duration: FloatArray, delay: FloatArray, micro_batches: int) -> float:
    """End of the last backward on the first rank."""
    schedule = build_schedule(duration.shape[1], 1, micro_batches)
    return float(simulate(schedule, duration, delay)[schedule.last[0]])


def period_of(duration: FloatArray, delay: FloatArray) -> float:
    """The program's period; a backward hop is named by its receiver there, by its sender in the simulation."""
    return pipeline_period(duration[0], duration[1], delay[0, :-1], delay[1, 1:])


@settings(max_examples=30, deadline=None)
@given(STAGES, SEEDS)
def test_period_is_the_simulations_growth(ranks: int, seed: int) -> None:
    """Between two long runs the step grows by one period for each micro-batch, to a millionth.

    The lengths differ by a multiple of every possible cycle's micro-batches (1 to ``ranks``).
    """
    duration, delay = stages_of(ranks, seed)
    common = int(np.lcm.reduce(np.arange(1, min(ranks, 8) + 1))) if ranks <= 8 else 0
    if common:
        growth = (step_s(duration, delay, 40 + 2 * common) - step_s(duration, delay, 40 + common)) / common
        assert growth == pytest.approx(period_of(duration, delay), rel=1e-6)
    else:
        growth = (step_s(duration, delay, 6000) - step_s(duration, delay, 3000)) / 3000
        assert growth == pytest.approx(period_of(duration, delay), rel=1e-3)


@settings(max_examples=100, deadline=None)
@given(STAGES, SEEDS, st.integers(0, 64), st.booleans())
def test_formula_and_simulation_agree_within_the_fill(ranks: int, seed: int, more: int, wild: bool) -> None:
    """A round trip and a period for each further micro-batch: low by no more than the fill and drain.

    The lower end is a row of the placement program, so it must never exceed the simulation.  The upper end is
    the steady schedule run from the first micro-batch on (docs/pipeline.md).
    """
    duration, delay = stages_of(ranks, seed)
    if wild:
        duration = duration * np.random.default_rng(seed).lognormal(0.0, 1.0, duration.shape)
    hops = np.concatenate([[0.0], delay[0, :-1] + delay[1, 1:]])
    trips = (duration.sum(axis=0) + hops).cumsum()
    period = period_of(duration, delay)
    simulated = step_s(duration, delay, ranks + more)
    assert trips[-1] + more * period <= simulated * (1 + 1e-9)
    latency = (trips + np.arange(ranks)[::-1] * period).max()
    assert simulated <= (latency + (ranks + more - 1) * period) * (1 + 1e-9)


def test_a_lone_rank_repeats_its_own_work() -> None:
    """Without a pipeline the period is forward plus backward."""
    assert period_of(np.array([[1.0], [2.0]]), np.zeros((2, 1))) == pytest.approx(3.0)


def test_two_ranks_wait_for_their_round_trip() -> None:
    """Two ranks keep two micro-batches under way: a slow link makes each wait for half the round trip."""
    duration, delay = np.array([[1.0, 1.0], [2.0, 2.0]]), np.full((2, 2), 4.0)
    assert period_of(duration, delay) == pytest.approx((1 + 4 + 1 + 2 + 4 + 2) / 2)
