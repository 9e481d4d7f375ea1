"""``python -m benchmarks.fit``: what it selects, prints and writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import fit as command
from benchmarks.accuracy import OWN_TABLE
from solver.costs.calibration import PARAMETERS, Owner


def test_a_fit_is_printed_with_errors_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    """A parameter with its interval and number of rows, then errors before, after and held out."""
    assert command.main(["--kind", "A100", "--parameters", "sustained_share"]) == 0
    printed = capsys.readouterr().out
    line = next(line for line in printed.splitlines() if line.startswith("A100 sustained_share"))
    assert line.endswith("rows")
    assert "held out" in printed
    assert "kind A100" in printed


def test_only_a_named_table_without_dry_run_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same table gives the same files; a filtered fit leaves confidence.toml alone."""
    monkeypatch.setattr(command, "DATA", tmp_path)
    monkeypatch.setattr(command, "FOUND", tmp_path / "coverage.csv")
    some = ["--parameters", "sustained_share"]
    command.main(some)
    command.main([*some, "--table", str(OWN_TABLE), "--dry-run"])
    assert list(tmp_path.iterdir()) == []
    command.main([*some, "--table", str(OWN_TABLE), "--kind", "A100"])
    assert [path.name for path in tmp_path.iterdir()] == ["fitted.toml"]
    command.main([*some, "--table", str(OWN_TABLE)])
    first = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    command.main([*some, "--table", str(OWN_TABLE)])
    assert {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()} == first
    assert set(first) == {"fitted.toml", "confidence.toml", "coverage.csv"}


def test_intervals_are_renewed_without_a_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters stay as shipped, and nothing is written in a dry run."""
    monkeypatch.setattr(command, "DATA", tmp_path)
    monkeypatch.setattr(command, "FOUND", tmp_path / "coverage.csv")
    command.main(["--confidence", "--table", str(OWN_TABLE), "--dry-run"])
    assert list(tmp_path.iterdir()) == []
    command.main(["--confidence", "--table", str(OWN_TABLE)])
    assert {path.name for path in tmp_path.iterdir()} == {"confidence.toml", "coverage.csv"}
    assert '"megatron-lm-3" = 8' in (tmp_path / "confidence.toml").read_text("utf-8")


def test_a_filter_chooses_the_parameters_of_what_it_names() -> None:
    """A framework's alone, a GPU kind's alone, or all."""
    frameworks = command.chosen_parameters(None, ["nemo-25.02"], None)
    kinds = command.chosen_parameters(None, None, ["H100"])
    assert {PARAMETERS[name].owner for name in frameworks} == {Owner.FRAMEWORK}
    assert {PARAMETERS[name].owner for name in kinds} == {Owner.GPU}
    assert set(command.chosen_parameters(None, None, None)) == {*frameworks, *kinds} == {*PARAMETERS} - {"slowdown"}
