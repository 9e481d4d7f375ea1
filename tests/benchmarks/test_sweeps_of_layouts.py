"""Rows of many layouts of one model: how nanotron fills stages, and rows that stalled."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.accuracy import main
from benchmarks.measured import Measured, stalls, with_doubts
from benchmarks.published import read_run
from benchmarks.rows import Row, Skipped
from solver.degrees.layout import filled_stages

ROW = {
    "id": "a",
    "source": "sweeps of nanotron v0.5, 2025-02",
    "model_name": "nanotron-llama",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "32",
    "ffn_hidden": "14336",
    "gated_mlp": "1",
    "vocab": "131072",
    "seq_len": "4096",
    "gpu": "H100",
    "gpus_per_node": "8",
    "num_gpus": "16",
    "interconnect": "AWS EFA, 400 Gb/s/GPU",
    "precision": "bf16",
    "tp": "4",
    "pp": "2",
    "dp": "2",
    "zero": "1",
    "micro_batch": "1",
    "global_batch": "256",
    "recompute": "none",
    "iter_time_s": "20",
}


@pytest.mark.parametrize(("pipeline", "counts"), [(2, [18, 14]), (4, [9, 9, 8, 6]), (8, [5, 4, 4, 5, 4, 4, 4, 2])])
def test_nanotron_fills_a_stage_until_it_costs_more_than_its_share(pipeline: int, counts: list[int]) -> None:
    """The head is worth 2.2 layers; a stage ends with the layer that exceeds its part of the running cost."""
    architecture = read_run(ROW).architecture
    assert filled_stages(architecture, pipeline) == tuple(counts)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"layers": "16", "hidden": "2048", "kv_heads": "32", "ffn_hidden": "8192", "pp": "16"},
            "pipeline stages without a module",
        ),
        ({"pp": "8", "tp": "1", "dp": "2", "micro_batch": "32"}, "fewer micro-batches"),
    ],
)
def test_what_nanotron_refuses_is_no_run(changes: dict[str, str], reason: str) -> None:
    """Stages behind the loss hold no parameter, and a schedule needs as many micro-batches as it warms up with."""
    with pytest.raises(Skipped, match=reason):
        read_run(ROW | changes)


def test_a_row_that_stalled_is_told_by_its_layout_elsewhere() -> None:
    """Three numbers of GPUs at about the same pace and one at four times that: the one is doubted."""
    rows: list[Row] = [
        ROW | {"id": name, "num_gpus": str(8 * data), "dp": str(data), "iter_time_s": str(seconds / data)}
        for name, data, seconds in (("a", 2, 40.0), ("b", 4, 42.0), ("c", 8, 160.0), ("d", 16, 44.0))
    ]
    measured = with_doubts([Measured(row, read_run(row)) for row in rows])
    assert [each.run.name for each in measured if each.doubt] == ["c"]
    assert "times as long a micro-batch" in measured[2].doubt
    assert stalls(measured[:2]) == {}, "two rows tell nothing of what is usual"


def test_the_page_on_accuracy_is_written_from_the_report(tmp_path: Path) -> None:
    """A page with its figure: every section, and a line for each generation of the table."""
    page = tmp_path / "accuracy.md"
    assert main(["--page", str(page)]) == 0
    written = page.read_text(encoding="utf-8")
    headings = ("## What is off most", "## Step time", "## Runs that were not fitted")
    places = [written.index(heading) for heading in headings]
    assert places == sorted(places), "what is bad comes first"
    assert "| framework mlperf-4 |" in written or "| framework nemo" in written
    assert (tmp_path / "figures" / "accuracy.svg").read_text(encoding="utf-8").startswith("<?xml")
