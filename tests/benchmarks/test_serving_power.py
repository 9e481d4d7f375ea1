"""Shares of their boards' power that measured GPUs draw as they serve, and the law fitted to them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.serving_power import FITTED, law_report, runs_of, shares_report, used_of
from cluster_models.cluster.draw import draw_law
from solver.serving.power import drawn_share

RUN = {
    "gpu_model": "H100",
    "num_gpus": 2,
    "avg_power_watts": 700.0,
    "avg_batch_size": 31.5,
    "median_itl_ms": 9.0,
    "avg_output_len": 700.0,
    "output_throughput_tokens_per_sec": 2100.0,
    "parallelization": {"tensor_parallel": 2, "expert_parallel": 1},
}


def _written(folder: Path, model: str, *runs: dict[str, Any]) -> None:
    whole = {"model_id": f"org/{model}", "task": "lm-arena-chat", "weight_precision": "bfloat16"}
    (folder / f"{model}.json").write_text(json.dumps(whole | {"configurations": list(runs)}))


def test_power_is_that_of_all_gpus_over_their_boards(tmp_path: Path) -> None:
    """Two H100 at 350 W each draw half; kinds without figures here and runs without tokens are left out."""
    image = {name: value for name, value in RUN.items() if name != "median_itl_ms"}
    _written(tmp_path, "model", RUN, image, RUN | {"gpu_model": "A40"}, RUN | {"gpu_model": "B200", "num_gpus": 1})
    runs = list(runs_of(tmp_path))
    assert [(run.kind, run.share, run.requests_per_s, run.case) for run in runs] == [
        ("H100-SXM5-80GB", 0.5, 3.0, None),
        ("B200-SXM-180GB", 0.7, 3.0, None),
    ]
    lines = list(shares_report(runs))
    assert len(lines) == 5
    assert lines[1].split() == ["H100-SXM5-80GB", "17", "to", "64", "1", "50%", "50%", "50%"]


def test_a_fit_finds_the_law_that_runs_were_made_with(tmp_path: Path) -> None:
    """Runs of a dense model and one of experts over loads, on two kinds, drawing as another law than ours."""
    for model in ("Llama-3.1-70B-Instruct", "Qwen3-30B-A3B"):
        runs = [
            RUN | {"avg_batch_size": load, "output_throughput_tokens_per_sec": 60.0 * load**0.8, "gpu_model": kind}
            for load in (1.0, 4.0, 16.0, 64.0, 256.0)
            for kind in ("H100", "B200")
        ]
        _written(tmp_path, model, *runs)
    runs = list(runs_of(tmp_path))
    used = used_of(runs)
    made = replace(draw_law(), floor=0.25, experts=0.1, memory=0.3, compute=0.6, exponent=0.4)
    drawn = drawn_share(used.loads, used.memory, used.compute, made)
    found = replace(used, share=drawn).fitted(np.ones(len(runs), dtype=bool))
    assert [getattr(found, name) for name in FITTED] == pytest.approx(
        [getattr(made, name) for name in FITTED], rel=0.05
    )
    lines = list(law_report([replace(run, share=float(share)) for run, share in zip(runs, drawn, strict=True)]))
    assert any(line.startswith("models held out") for line in lines)
