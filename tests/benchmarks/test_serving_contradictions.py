"""Rows that contradict arithmetic or one another, told without a prediction."""

from __future__ import annotations

import pytest

from benchmarks.rows import Row
from benchmarks.serving_accuracy import is_believed
from benchmarks.serving_contradictions import PEAK, TURNS, contradicted, peak_share
from benchmarks.serving_fit import fitted_to, problem_of
from benchmarks.serving_rows import serving_runs
from tests.benchmarks.test_serving_rows import ROW


def _sweep(*points: tuple[int, float], **given: str) -> list[Row]:
    """Rows of one configuration: requests in flight and milliseconds per output token."""
    return [
        ROW | {"concurrency_or_rate": str(load), "tpot_ms": str(ms), "output_tok_s_total": ""} | given
        for load, ms in points
    ]


@pytest.mark.parametrize(
    ("points", "broken"),
    [
        ([(8, 10.0), (16, 12.0), (32, 20.0)], False),
        ([(8, 10.0), (16, 7.6)], False),  # within a third
        ([(8, 10.0), (16, 7.4)], True),  # falls while the load doubles
        ([(8, 10.0), (16, 26.0)], False),
        ([(8, 10.0), (16, 27.0)], True),  # longer than both halves in turn
        ([(8, 10.0), (8, 14.0)], True),  # repeats that differ
    ],
)
def test_times_of_a_sweep_lie_between_no_growth_and_turns(points: list[tuple[int, float]], broken: bool) -> None:
    """None of a sweep that breaks the bounds is believed; another sweep is not touched."""
    rows = _sweep(*points) + _sweep((8, 30.0), (16, 31.0), isl="2048")
    runs, _ = serving_runs(rows)
    assert [run.contradiction for run in runs] == [TURNS if broken else ""] * len(points) + ["", ""]


def test_runs_faster_than_their_gpus_are_told() -> None:
    """70e9 parameters, 2,048 tokens a request, 4 H100 at 1,979 TFLOP/s: 28 requests/s at most, 28,300 tokens/s."""
    (fast, slow), _ = serving_runs([ROW | {"output_tok_s_total": str(total)} for total in (29500, 20000)])
    assert (fast.contradiction, slow.contradiction) == (PEAK, "")
    assert peak_share(slow) == pytest.approx(peak_share(fast) * 20000 / 29500)
    assert 1.0 < peak_share(fast) < 1.1
    (little,), _ = serving_runs(_sweep((5000, 15.0)))
    assert little.contradiction == PEAK  # 5,000 requests of 15.5 s each: 323 a second


def test_contradicted_rows_are_not_fitted_to() -> None:
    """They have no weight in a fit, are counted by engine, and are scored apart."""
    runs, _ = serving_runs(_sweep((8, 10.0), (16, 5.0)) + _sweep((8, 30.0), isl="2048"))
    assert [is_believed(run) for run in runs] == [False, False, True]
    assert [(each.rows, each.believed_else) for each in contradicted(runs)] == [(2, 2)]
    assert len(fitted_to(runs)) == 1
    assert sorted(problem_of(fitted_to(runs, contradicted=True)).weights) == [0.0, 0.0, 1.0]
