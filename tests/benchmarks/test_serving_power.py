"""Shares of their boards' power that measured GPUs draw as they serve."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.serving_power import report, shares_of


def test_power_is_that_of_all_gpus_over_their_boards(tmp_path: Path) -> None:
    """Two H100 at 350 W each draw half; kinds without figures here and runs without tokens are left out."""
    run = {
        "gpu_model": "H100",
        "num_gpus": 2,
        "avg_power_watts": 700.0,
        "avg_batch_size": 31.5,
        "median_itl_ms": 9.0,
    }
    image = {name: value for name, value in run.items() if name != "median_itl_ms"}
    runs = {"configurations": [run, image, run | {"gpu_model": "A40"}, run | {"gpu_model": "B200", "num_gpus": 1}]}
    (tmp_path / "model.json").write_text(json.dumps(runs))
    rows = list(shares_of(tmp_path))
    assert rows == [("H100-SXM5-80GB", 31.5, 0.5), ("B200-SXM-180GB", 31.5, 0.7)]
    lines = list(report(rows))
    assert len(lines) == 5
    assert lines[1].split() == ["H100-SXM5-80GB", "17", "to", "64", "1", "50%", "50%", "50%"]
