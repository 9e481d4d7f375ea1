"""Rows of measured serving runs: what they state, what is taken where they are silent, and the files written."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.rows import Row
from benchmarks.serving_accuracy import OUT_COLUMNS, main, predicted, report
from benchmarks.serving_choice import choices_of
from benchmarks.serving_repairs import estimated_run
from benchmarks.serving_rows import engine_of, serving_runs
from cluster_models.serving.workload import Worker

ROW = {
    "id": "one",
    "source": "a paper",
    "model": "Llama-3.1-70B",
    "gpu": "H100 SXM",
    "num_gpus": "4",
    "engine+version": "vllm 0.12.0",
    "precision": "fp8",
    "tp": "4",
    "pp": "1",
    "dp": "1",
    "ep": "1",
    "disagg": "no",
    "isl": "1024",
    "osl": "1024",
    "concurrency_or_rate": "16",
    "batch": "16",
    "ttft_ms": "150",
    "tpot_ms": "15",
    "output_tok_s_total": "1000",
    "notes": "",
}


def _one(**given: str) -> Row:
    return ROW | given


def test_a_row_is_a_case_with_its_figures() -> None:
    """Milliseconds become seconds, a total becomes tokens/s of a GPU."""
    (run,), skipped = serving_runs([_one()])
    assert not skipped
    assert (run.ttft_s, run.tpot_s, run.output_tok_s_per_gpu) == (0.15, 0.015, 250.0)
    assert run.case.configuration.decode.worker == Worker(tensor=4)
    assert run.case.workload.engine.name == "vllm-0.13"
    assert (run.mode, run.doubt) == ("aggregated", "")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"isl": ""}, "lengths not stated"),
        ({"gpu": "Arc"}, "GPU kind unknown"),
        ({"model": "no such model"}, "model shape unknown"),
        ({"engine+version": "in-house"}, "engine unknown"),
        ({"tp": "three"}, "tp is not a number"),
        ({"concurrency_or_rate": "some", "batch": ""}, "load not stated"),
        ({"osl": "1"}, "prefill only"),
        ({"precision": "fp7"}, "weights unknown"),
        ({"isl": "", "notes": "MLPerf dataset lengths", "model": "Llama-3.1-8B"}, "lengths not stated"),
        ({"disagg": "decode only"}, "split pools not stated"),
    ],
)
def test_what_cannot_be_priced_is_skipped_with_its_reason(given: dict[str, str], reason: str) -> None:
    """A broken row never stops the others."""
    runs, skipped = serving_runs([_one(**given), _one()])
    assert len(runs) == 1
    assert dict(skipped) == {reason: 1}


@pytest.mark.parametrize(
    ("version", "engine"),
    [
        ("sglang (lmsysorg/sglang:v0.5.6-cu129-amd64)", "sglang-0.5.5"),
        ("sglang 0.5.10.post1", "sglang-0.5.8"),
        ("trtllm 0.8.1.post2", "trtllm-1.2"),
        ("TensorRT-LLM v1.0 docs", "trtllm-1.0"),
        ("vllm 0.19.0", "vllm-0.16"),
        ("vllm (vllm/vllm-openai:v0.11.2)", "vllm-0.11"),
        ("vLLM-based prototype (2023)", "vllm-2023"),
        ("atom (rocm/atom:rocm7.1.1)", "atom-0.1"),
    ],
)
def test_generations_by_their_versions(version: str, engine: str) -> None:
    """Images, releases and documentation."""
    assert engine_of(_one(**{"engine+version": version})).name == engine


def test_split_pools_in_full() -> None:
    """Ranks of attention data parallelism are the GPUs of a worker."""
    pools = "P: 1x(tp1,ep8,dpattn=true)=8 GPUs / D: 2x(tp8,pp1,dp1,moe_tp1,ep8,bs4)=16 GPUs"
    (run,), _ = serving_runs([_one(model="DeepSeek-R1", disagg=pools, tp="", num_gpus="24")])
    prefill, decode = run.case.configuration.prefill, run.case.configuration.decode
    assert prefill is not None
    assert prefill.worker == Worker(attention_data=8, expert=8)
    assert (decode.worker, decode.replicas) == (Worker(tensor=8, expert=8), 2)
    assert (run.mode, run.doubt) == ("split", "")


def test_split_pools_without_numbers_are_open() -> None:
    """They are priced as usual and scored by themselves."""
    pools = "P: x(tp4,pp1,dp1,moe_tp1,ep4,bs)= GPUs / D: x(tp8,pp1,dp1,moe_tp2,ep4,bs)= GPUs"
    (run,), _ = serving_runs([_one(model="DeepSeek-R1", gpu="GB300 NVL72", disagg=pools, tp="", num_gpus="")])
    assert run.doubt
    assert run.assumed
    assert run.case.configuration.decode.replicas > 1


def test_an_export_that_multiplies_by_expert_parallelism_is_read_back() -> None:
    """Tp 64 = 8 slices of each expert x 8 groups of experts is one worker of 8 GPUs."""
    (run,), _ = serving_runs(
        [
            _one(
                source="source_file=2026-04-06.csv",
                model="Qwen3.5-397B-A17B",
                **{"engine+version": "sglang 0.5.9", "tp": "64", "ep": "8", "num_gpus": "64", "notes": "moe_tp=8"},
            )
        ]
    )
    assert run.case.configuration.decode.worker == Worker(tensor=8, expert=8)


def test_predictions_do_not_read_what_was_measured(tmp_path: Path) -> None:
    """The same lines with and without measured columns, one for each row."""
    files = []
    for name, rows in (
        ("measured", [_one(), _one(id="two", gpu="Arc")]),
        ("blank", [_one(ttft_ms="", tpot_ms="", output_tok_s_total=""), _one(id="two", gpu="Arc")]),
    ):
        table, out = tmp_path / f"{name}.csv", tmp_path / f"{name}-out.csv"
        with table.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(ROW))
            writer.writeheader()
            writer.writerows(rows)
        assert main(["--table", str(table), "--out", str(out)]) == 0
        files.append(out.read_text())
    assert files[0] == files[1]
    lines = list(csv.reader(files[0].splitlines()))
    assert tuple(lines[0]) == OUT_COLUMNS
    assert [line[0] for line in lines[1:]] == ["one", "two"]
    assert all(float(cell) > 0 for cell in lines[1][1:])
    assert all(float(cell) > 0 for cell in lines[2][1:])


@pytest.mark.parametrize(
    "given",
    [
        {"model": "Gemma-3-27B", "params_b": "27", "gpu": "L40S 48GB", "engine+version": "lmdeploy 0.9"},
        {"model": "Qwen3-Next-80B-A3B", "gpu": "MI300X", "dp": "8", "ep": "8", "disagg": "P: ? / D: ?"},
        {"isl": "1e3", "osl": "nan", "tp": "-3", "precision": "weird"},
        {"model": "DeepSeek-R1", "gpu": "GB300", "osl": "0", "concurrency_or_rate": "99999999"},
        dict.fromkeys(ROW, ""),
    ],
)
def test_every_row_is_estimated(given: dict[str, str]) -> None:
    """Whatever is missing or unknown is filled in with a word why, and the row is priced."""
    run, words = estimated_run(_one(**given))
    assert run is not None
    assert "taken as" in words
    assert np.isfinite(predicted([run]).figures).all()


def test_a_whole_row_is_estimated_as_it_stands() -> None:
    """Nothing is filled in where nothing is missing."""
    run, words = estimated_run(_one())
    assert words == ""
    assert run == serving_runs([_one()])[0][0]


def test_regret_is_what_the_predicted_best_loses() -> None:
    """Two workers of 8 GPUs, one measured 20 ms a token and one 25 ms: the wrong choice takes a quarter longer."""
    runs, _ = serving_runs([_one(tp="8", num_gpus="8"), _one(id="two", model="Qwen3-235B-A22B", tp="8", ep="8")])
    one = replace(runs[0], case=replace(runs[0].case, architecture=runs[1].case.architecture))
    measured = np.array([[0.020, 0.0], [0.025, 0.0]])
    for guess, loss in ((measured, 0.0), (measured[::-1], 0.2)):
        assert [choice.median_regret for choice in choices_of([one, runs[1]], guess, measured)] == pytest.approx(
            [loss] * 4
        )


def test_the_report_scores_groups_and_writes_its_page(tmp_path: Path) -> None:
    """Two configurations of one model, GPU and load are a choice."""
    table = tmp_path / "table.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerows([_one(), _one(id="two", tp="8", num_gpus="8", tpot_ms="11")])
    result = report([table], rows=True)
    assert result.scores["time per output token"][0].rows == 2
    assert [choice.groups for choice in result.choices] == [1]
    assert result.rows is not None
    page = tmp_path / "page.md"
    assert main(["--table", str(table), "--page", str(page)]) == 0
    assert "## Groups held out" in page.read_text()
