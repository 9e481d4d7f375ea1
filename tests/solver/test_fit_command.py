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
    assert set(first) == {"fitted.toml", "confidence.toml"}


def test_a_filter_chooses_the_parameters_of_what_it_names() -> None:
    """A framework's alone, a GPU kind's alone, or all."""
    frameworks = command.chosen_parameters(None, ["nemo-25.02"], None)
    kinds = command.chosen_parameters(None, None, ["H100"])
    assert {PARAMETERS[name].owner for name in frameworks} == {Owner.FRAMEWORK}
    assert {PARAMETERS[name].owner for name in kinds} == {Owner.GPU}
    assert set(command.chosen_parameters(None, None, None)) == set(PARAMETERS) == {*frameworks, *kinds}


def test_a_group_that_alone_tells_of_its_kind_is_held_out_in_parts() -> None:
    """Rows of one sweep share a block unless nothing else tells of their GPU kind or framework."""
    measured = command.select(OWN_TABLE, None, ["A100"])
    groups = [each.group for each in measured]
    blocks = command.blocks_of(measured)
    assert all(block.startswith(group) for block, group in zip(blocks, groups, strict=True))
    assert len(set(blocks)) >= len(set(groups))
    alone = command.blocks_of(measured[:1])
    degrees = measured[0].run.configuration.degrees
    assert alone == [f"{groups[0]} tp{degrees.tensor} pp{degrees.pipeline}"]
