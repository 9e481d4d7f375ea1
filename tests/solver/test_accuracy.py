"""The accuracy benchmark: the shipped table of published steps is priced and close."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.accuracy import OWN_TABLE, main, read_rows, report, runs_of
from solver.run_memory import predict_fits

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def test_published_steps_are_predicted_within_a_quarter() -> None:
    """Every shipped row is within 25 % and the median within 10 %."""
    result = report(OWN_TABLE, None, None, rows=True)
    errors = [abs(error) for _, error in result["rows"]]
    assert len(errors) == len(read_rows(OWN_TABLE))
    assert max(errors) < 0.25
    assert result["step_time"][0].median_absolute < 0.10


def test_json_lists_scores_and_what_was_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    """The machine-readable report parses and names its groups."""
    assert main(["--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["step_time"][0]["group"] == "all"
    assert set(printed["skipped"]) == {"step time not stated"}


def test_a_row_that_cannot_be_priced_is_counted_with_its_reason() -> None:
    """A number format the planner lacks is a reason, not a failure."""
    row = dict(read_rows(OWN_TABLE)[0]) | {"precision": "int8"}
    kept, skipped = runs_of([row])
    assert kept == []
    assert skipped == {"precision int8": 1}


@pytest.mark.skipif(not SHARED.exists(), reason="the shared measurements are not here")
def test_configurations_that_ran_out_of_memory_are_refused() -> None:
    """Every out-of-memory row that can be expressed exceeds its GPU."""
    failed, _ = runs_of(read_rows(SHARED / "training_oom.csv"))
    assert len(failed) >= 8
    assert not any(predict_fits(each.run) for each in failed)
