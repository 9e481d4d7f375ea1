"""Published steps of reinforcement learning: lengths with a tail, and the interval of the next ratio."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from benchmarks.reinforcement import TABLE, next_interval, problem_of, response_lengths


def test_one_response_of_a_batch_is_as_long_as_may_be() -> None:
    """Its share is one in the batch; the mean is that of the table, to the share of it."""
    lengths = response_lengths(1019.0, 4096.0, responses=2048)
    assert (lengths.tokens[-1], lengths.shares[-1]) == (3946.0, pytest.approx(1 / 2048, rel=0.01))
    assert lengths.mean == pytest.approx(1019.0 - 150.0, rel=0.01)


def test_rows_are_problems_with_their_recipes() -> None:
    """Degrees, recomputation and the engine's memory of every row."""
    with TABLE.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            workload = problem_of(row).workload
            assert str(workload.training.recompute[0]) == row["recompute"]
            assert workload.rollout.memory_fraction == float(row["engine_percent"]) / 100


def test_nine_of_ten_next_ratios_lie_in_the_interval() -> None:
    """Student's interval of six ratios, on log-normal ones."""
    draws = np.exp(np.random.default_rng(1).normal(0.3, 0.2, (2000, 7)))
    inside = 0
    for *known, following in draws.tolist():
        low, high = next_interval(known)
        inside += low <= following <= high
    assert inside / len(draws) == pytest.approx(0.9, abs=0.02)
