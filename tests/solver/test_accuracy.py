"""The accuracy benchmark: the shipped table of published steps is priced and close."""

from __future__ import annotations

import csv
import json
from dataclasses import fields
from pathlib import Path

import pytest

from benchmarks.accuracy import OWN_TABLE, Report, main, report
from benchmarks.measured import runs_of
from benchmarks.rows import read_rows
from solver.run_memory import predict_fits

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def test_published_steps_are_predicted_within_a_quarter() -> None:
    """Every shipped row is within 25 % and the median within 10 %."""
    result = report([OWN_TABLE], rows=True)
    errors = [abs(row.error) for row in result.rows or ()]
    assert len(errors) == len(read_rows(OWN_TABLE))
    assert max(errors) < 0.25
    assert result.step_time[0].median_absolute < 0.10


@pytest.mark.parametrize("more", [[], ["--rows", "--memory", str(OWN_TABLE), "--oom", str(OWN_TABLE)]])
def test_json_is_strict_and_has_the_same_keys_whatever_is_asked_for(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every field of the report is there, null where nothing was asked; NaN and infinity, no JSON, never are."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert main(["--json", *more]) == 0
    printed = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert list(printed) == [field.name for field in fields(Report)]
    assert printed["step_time"][0]["group"] == "all"
    assert set(printed["skipped"]) == {"step time not stated"}
    assert [printed[name] is None for name in ("memory", "oom", "rows")] == [not more] * 3


def test_predictions_are_written_for_every_row_without_reading_what_was_measured(tmp_path: Path) -> None:
    """The same lines come out when the measured columns are empty, and an unreadable row gives an empty line."""
    rows = [dict(row) for row in read_rows(OWN_TABLE)]
    blank = [
        row | dict.fromkeys(("iter_time_s", "tokens_per_s_per_gpu", "mem_gb_per_gpu", "mfu"), "") for row in rows
    ]
    blank.append(rows[0] | {"id": "X1", "gpu": "Abacus 3000"})
    table, out, other = tmp_path / "table.csv", tmp_path / "out.csv", tmp_path / "other.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(blank[0]))
        writer.writeheader()
        writer.writerows(blank)
    assert main(["--table", str(OWN_TABLE), "--out", str(out)]) == 0
    assert main(["--table", str(table), "--out", str(other)]) == 0
    lines = other.read_text("utf-8").splitlines()
    assert lines[:-1] == out.read_text("utf-8").splitlines()
    assert lines[-1] == "X1,,,"


def test_a_row_that_cannot_be_priced_is_counted_with_its_reason() -> None:
    """A number format the planner lacks is a reason, not a failure."""
    row = dict(read_rows(OWN_TABLE)[0]) | {"precision": "int8"}
    kept, skipped = runs_of([row])
    assert kept == []
    assert skipped == {"precision int8": 1}


@pytest.mark.skipif(not SHARED.exists(), reason="the shared measurements are not here")
def test_configurations_that_ran_out_of_memory_are_refused() -> None:
    """Nine in ten rows that ran out of memory exceed a GPU; one may have crashed for another reason."""
    failed, skipped = runs_of(read_rows(SHARED / "training_oom.csv"))
    assert not skipped
    assert sum(not predict_fits(each.run) for each in failed) >= 0.9 * len(failed)
