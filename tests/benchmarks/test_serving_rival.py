"""The comparison with aiconfigurator: questions in its words, its answers, and what is said where it is absent."""

from __future__ import annotations

import io
import json
import os
import sys
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks import aiconfigurator_worker
from benchmarks.comparisons import Comparison, LeftOut, report
from benchmarks.serving_rival import main
from benchmarks.serving_rival_plans import configuration_of
from benchmarks.serving_rival_questions import question_of
from cluster_models.serving.workload import Pool, ServingConfiguration, ServingWorkload, WeightFormat, Worker


def test_one_line_says_that_it_is_not_installed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the remedy; the page of all comparisons then keeps its part."""
    assert main(["--table", "none.csv", "--python", sys.executable]) == os.EX_UNAVAILABLE
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert "pip install aiconfigurator" in printed.err
    assert main(["--table", "none.csv", "--python", "/no/such/python"]) == os.EX_UNAVAILABLE
    ended = SimpleNamespace(returncode=os.EX_UNAVAILABLE, stderr=printed.err)
    monkeypatch.setattr("benchmarks.comparisons.subprocess.run", lambda *_, **__: ended)
    with pytest.raises(LeftOut, match="not installed"):
        report(Comparison("rival", "benchmarks.serving_rival"))


def test_a_table_without_a_row_for_both_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, before anything is planned or asked."""
    monkeypatch.setattr("benchmarks.serving_rival.why_not", lambda _: None)
    (tmp_path / "rows.csv").write_text("id,source,model,gpu\n1,s,gpt-oss-120b,MI300X\n")
    assert main(["--table", str(tmp_path / "rows.csv")]) == 2
    assert "has no row that both can be asked about" in capsys.readouterr().err


def test_errors_stand_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rival that is a tenth off is so in the tables; what it refuses is counted and left out."""
    names = "id,source,model,gpu,num_gpus,engine+version,precision,tp,disagg,isl,osl"
    rows = [
        f"{number},s,{model},H100,{tp},vllm 0.16,fp8,{tp},no,1024,512,{load},{load * 9 / tp},{40 / tp + load / 9}"
        for number, (model, tp, load) in enumerate(product(("Qwen3-32B", "Llama-3.1-70B"), (2, 4), (16, 64)))
    ]
    (tmp_path / "rows.csv").write_text("\n".join([f"{names},concurrency_or_rate,ttft_ms,tpot_ms", *rows]))

    def answer(_: str, estimates: list[dict[str, Any]], __: object) -> dict[str, Any]:
        asked = [(each["tp_size"], each["batch_size"]) for each in estimates]
        made = [{"ttft_ms": 1.1 * load * 9 / tp, "tpot_ms": 1.1 * (40 / tp + load / 9)} for tp, load in asked]
        return {"version": "0.12.0", "estimates": [*made[:-1], {"refused": "no table"}], "plans": []}

    monkeypatch.setattr("benchmarks.serving_rival.why_not", lambda _: None)
    monkeypatch.setattr("benchmarks.serving_rival.own_plans", list)
    monkeypatch.setattr("benchmarks.serving_rival.ask", answer)
    assert main(["--table", str(tmp_path / "rows.csv")]) == 0
    printed = capsys.readouterr().out
    lines = [line.split(" | ") for line in printed.splitlines() if line.startswith("| all |")]
    assert [(line[1], line[4]) for line in lines] == [("7", "10.0%, 10%")] * 2
    assert "asked about 8 of the 8 rows whose model and GPU kind both know, and refused 1." in printed


def test_questions_state_the_batch_of_one_attention_rank() -> None:
    """256 requests on two replicas of four attention ranks are 32 a rank; experts of 16 GPUs in 8 groups of 2."""
    load = ServingWorkload(1000, 500, concurrency=256, weights=WeightFormat.FP8)
    shape = ServingConfiguration(Pool(Worker(tensor=4, pipeline=2, attention_data=4, expert=8), 2))
    asked = question_of(shape, load, requests=256, checkpoint="m", system="h200_sxm", sparse=True)
    assert asked["batch_size"] == 32
    assert (asked["tp_size"], asked["pp_size"], asked["attention_dp_size"]) == (4, 2, 4)
    assert (asked["moe_ep_size"], asked["moe_tp_size"]) == (8, 2)
    dense = question_of(shape, load, requests=256, checkpoint="m", system="h200_sxm", sparse=False)
    assert not {"moe_ep_size", "moe_tp_size"} & dense.keys()


def test_its_plans_become_pools() -> None:
    """Whole copies of what it found fill the GPUs; the rest stays idle."""
    found = {"num_total_gpus": 2, "concurrency": 64, "tp": 2, "pp": 1, "dp": 1, "moe_ep": 1}
    assert configuration_of(found, 7) == (ServingConfiguration(Pool(Worker(tensor=2), 3)), 192)
    halves = {f"({part}){name}": value for part in "pd" for name, value in found.items()}
    split = {**halves, "(p)workers": 2, "(d)workers": 1, "num_total_gpus": 6, "concurrency": 100}
    pools = ServingConfiguration(Pool(Worker(tensor=2), 1), Pool(Worker(tensor=2), 2))
    assert configuration_of(split, 6) == (pools, 100)


def test_its_refusals_are_answers_and_its_words_stay_out_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it prints goes to standard error."""

    def estimate(*, batch_size: int) -> SimpleNamespace:
        sys.stdout.write("chatter")
        if not batch_size:
            raise KeyError("no table")
        return SimpleNamespace(ttft=100.0 * batch_size, tpot=10.0)

    class Row:
        iloc = (SimpleNamespace(to_dict=lambda: {"tp": 2, "_sources": {}}),)

    api: Any = ModuleType("aiconfigurator.cli.api")
    api.cli_estimate = estimate
    api.cli_default = lambda: SimpleNamespace(chosen_exp="agg", best_configs={"agg": Row})
    monkeypatch.setitem(sys.modules, "aiconfigurator", ModuleType("aiconfigurator"))
    monkeypatch.setitem(sys.modules, "aiconfigurator.cli", ModuleType("aiconfigurator.cli"))
    monkeypatch.setitem(sys.modules, "aiconfigurator.cli.api", api)
    monkeypatch.setattr(aiconfigurator_worker, "version", lambda _: "0.12.0")
    monkeypatch.setattr("logging.disable", lambda _: None)
    asked = {"estimates": [{"batch_size": 2}, {"batch_size": 0}], "plans": [{}]}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asked)))
    aiconfigurator_worker.main()
    answers = json.loads(capsys.readouterr().out)
    assert answers["estimates"] == [{"ttft_ms": 200.0, "tpot_ms": 10.0}, {"refused": "KeyError: 'no table'"}]
    assert answers["plans"][0]["tp"] == 2
    assert answers["plans"][0]["processor_s"] >= 0
    assert "_sources" not in answers["plans"][0]
