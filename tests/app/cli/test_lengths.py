"""``meshwright lengths``: a list or histogram of documents as part of a workload."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from app.cli import main
from app.documents.workload import WorkloadDocument


def test_a_list_and_its_histogram_are_one_workload(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output stands in a workload file as it is."""
    listed, counted = tmp_path / "listed", tmp_path / "counted.csv"
    listed.write_text("700\n120\n# a comment\n700\n\n120\n700\n", encoding="utf-8")
    counted.write_text("tokens,count\n120,2\n700;1\n700\t2\n", encoding="utf-8")
    printed = []
    for file in (listed, counted):
        assert main(["lengths", str(file), "--packing", "padded"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith("# 5 documents of 468 tokens in the mean, the longest of 700\n")
    sizes = {"sequence_length": 1024, "global_batch_sequences": 8}
    found = WorkloadDocument.model_validate(sizes | yaml.safe_load(printed[0])).to_value().lengths
    assert found is not None
    assert (found.lengths, found.shares) == ((120, 700), (0.4, 0.6))


@pytest.mark.parametrize("line", ["0", "-3,1", "12,x", "1,2,3", "9999999999", "5,inf"])
def test_a_line_that_is_no_length_is_named(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its number, with the remedy."""
    file = tmp_path / "lengths"
    file.write_text(f"tokens\n{line}\n", encoding="utf-8")
    assert main(["lengths", str(file)]) != 0
    assert "lengths line 2" in capsys.readouterr().err
