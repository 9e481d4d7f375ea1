"""Published steps of low-rank adapters."""

from __future__ import annotations

from pathlib import Path

from benchmarks.published import read_run
from benchmarks.rows import read_rows
from cluster_models.training.adapters import Adapters
from solver.runs import predict_runs

TABLE = Path(__file__).parents[2] / "benchmarks" / "data" / "published_adapters.csv"


def test_published_steps_of_adapters_are_predicted_though_none_was_fitted() -> None:
    """Without a pipeline within a tenth, and none too long by more."""
    rows = read_rows(TABLE)
    runs = [read_run(row) for row in rows]
    assert {run.workload.adapters for run in runs} == {Adapters(16)}
    errors = [found.step_s / (run.step_s or 1.0) - 1.0 for run, found in zip(runs, predict_runs(runs), strict=True)]
    flat = [error for run, error in zip(runs, errors, strict=True) if run.configuration.degrees.pipeline == 1]
    assert len(flat) == 6
    assert max(map(abs, flat)) < 0.1
    assert max(errors) < 0.1
