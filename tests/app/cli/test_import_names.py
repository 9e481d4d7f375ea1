"""``meshwright import`` of files whose host names could not stand in a list of hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main

HEADER = "node_a,node_b,gpus_per_node,collective,size_bytes,busbw_GBps"


@pytest.mark.parametrize("name", ["n 1", "n1;rm -rf /", "[n1", "n]1"])
def test_odd_names_are_shown_as_they_are(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A blank or a bracket in a name breaks no list: the report comes, names and all."""
    table = tmp_path / "pairs.csv"
    table.write_text(f"{HEADER}\n{name},n2,8,alltoall,1073741824,40.0\nn2,n3,8,alltoall,1073741824,40.0\n")
    assert main(["import", str(table), "--cluster", "odd"]) in (0, 2)
    answer = capsys.readouterr()
    assert "internal error" not in answer.err
    assert "The cluster as it would be" in answer.out
    assert name in answer.out
