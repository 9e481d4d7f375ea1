"""``meshwright plan``: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import solver.search
from app.cli import main
from app.cli.progress import progress_line
from app.documents.plan import plan_from_text
from cluster_models.errors import SolverFailed
from cluster_models.serving.goal import ServingObjective
from cluster_models.training.adapters import Adapters
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.training.workload import LinkBandwidth
from cluster_models.units import GIB
from solver.problem import PlanningProblem, Progress, SearchOptions
from tests.app.command_files import WORKLOAD
from tests.plans import small_no_plan, small_plan


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces the search by one that returns ``found["result"]`` and notes what it was asked.

    The search itself is tested with the solver; here the hand-made plan shows what the commands do with it.
    """
    seen: dict[str, Any] = {"result": small_plan(), "violations": ()}

    def search(problem: PlanningProblem, options: SearchOptions, **callbacks: Any) -> Plan | NoPlan:
        seen.update(problem=problem, options=options, **callbacks)
        callbacks["on_progress"](Progress(0.1, "placing", 10, 4, 0.5, 0.4, 0.2, "tp2"))
        if isinstance(seen["result"], BaseException):
            raise seen["result"]
        return seen["result"]  # type: ignore[no-any-return]  # what a test put in

    monkeypatch.setattr(solver.search, "plan", search)
    monkeypatch.setattr("app.cli.planning.planning.check_plan", lambda *_: seen["violations"])
    return seen


def test_json_is_the_plan_and_nothing_else(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output can be piped on; standard error is empty when it is not a terminal."""
    assert main(["plan", *files, "--json"]) == 0
    out, err = capsys.readouterr()
    assert plan_from_text(out) == small_plan()
    assert err == ""


def test_the_plan_says_what_drift_leaves_of_its_lead(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence, a row for the plan and one for its rival, and what the figures rest on."""
    assert main(["plan", *files, "--verbose"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "the plan stays ahead of the runner-up in 85 %, losing 1 % on average and 20 % at worst" in out
    assert "this plan 490.0 ms 505.0 ms 580.0 ms" in out
    assert "560.0 ms 85.0 %" in out
    assert "400 draws of all links" in out
    assert "median link bandwidth" in out


def test_a_plan_on_pessimistic_links_says_so(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the headline, where the step time stands."""
    plan = small_plan()
    found["result"] = replace(
        plan, provenance=replace(plan.provenance, link_bandwidth=LinkBandwidth.PESSIMISTIC), robustness=None
    )
    assert main(["plan", *files]) == 0
    out = capsys.readouterr().out
    assert "on pessimistic links: each at its p10" in out
    assert "When links change" not in out


def test_options_reach_the_search(files: list[str], found: dict[str, Any]) -> None:
    """Options that were not given stay with the solver's own defaults."""
    options = ["--time-limit", "7", "--effort", "3", "--seed", "5", "--gap", "0.02", "--backend", "highs"]
    assert main(["plan", *files, *options]) == 0
    assert found["options"] == SearchOptions(time_limit_s=7, effort=3, seed=5, gap=0.02, backend="highs")
    assert main(["plan", *files]) == 0
    assert found["options"] == SearchOptions()
    assert found["problem"].architecture.name == "llama-3-8b"
    assert [node.name for node in found["problem"].snapshot.cluster.nodes] == ["n1", "n2"]


def test_plan_is_printed_for_an_engineer(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Degrees, seats, memory, time, proof, warnings and what lost, all on the page."""
    assert main(["plan", *files, "--verbose"]) == 0
    out = capsys.readouterr().out
    for words in (
        "tp2 pp2 dp2",
        "b:0-1",
        "63.5 of 75.00 GiB",
        "pipeline bubble",
        "No plan in the search space can be more than 0.20 % better than this one.",
        "a to c",
        "As fast as the plan.",
        "0123456789abcdef",
    ):
        assert words in out


def test_the_first_screen_holds_the_decision(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The configuration, how to start it, its time, cost and room in memory; hosts and drift come last."""
    options = ["--tokens", "15T", "--gpu-price", "2.5", "--output", "kept.json", "--verbose"]
    assert main(["plan", *files, *options]) == 0
    out = capsys.readouterr().out
    screen = " ".join(" ".join(out.splitlines()[:24]).replace("│", "").split())
    for words in (
        "tp2 pp2 dp2 mb1",
        "meshwright export kept.json --format slurm --output run.sh && sbatch run.sh",
        "500.0 ms a step (80 % interval 450.0 ms to 625.0 ms)",
        "11.5 GiB to spare",
        "2.83 billion tokens a day",
        "480 USD a day at 2.5 USD per GPU-hour, 5,898,240 tokens a dollar",
        "5,298.2 days for 15 trillion tokens, about 2,543,132 USD",
        "recomputation selective",
    ):
        assert words in screen, words
    assert "Less sure than usual" in screen
    sections = [
        "Configuration",
        "Where a step's time goes",
        "How good is this plan?",
        "What lost",
        "Hosts:",
        "When links change",
    ]
    assert [out.index(each) for each in sections] == sorted(out.index(each) for each in sections)


def test_a_plan_says_what_it_offloads_and_how_long_that_takes(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A setting and a part of the step, which other plans have not."""
    plan = found["result"]
    assert main(["plan", *files]) == 0
    assert "node's memory" not in capsys.readouterr().out
    time = replace(plan.time, offload_s=plan.time.optimizer_s, optimizer_s=0.0)
    memory = tuple(replace(stage, host_bytes=8.0 * GIB) for stage in plan.memory)
    offloading = replace(plan.configuration, optimizer_offload=40)
    found["result"] = replace(plan, configuration=offloading, memory=memory, time=time)
    assert main(["plan", *files]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "optimizer states in nodes' memory 40 %, 8.0 GiB a GPU" in out
    assert "optimizer step in the node's memory" in out


def test_a_plan_that_trains_adapters_starts_by_bridge(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Megatron-LM has none, so that no job script is made of its arguments."""
    plan = found["result"]
    bridge = replace(plan.workload, framework=framework("megatron-bridge-26.02"), adapters=Adapters(16))
    found["result"] = replace(plan, workload=bridge)
    assert main(["plan", *files, "--output", "kept.json"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "meshwright export kept.json --format nemo --output nemo_overrides.sh" in out
    assert "adapters rank 16 beside" in out


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--tokens", "many"], "--tokens: is not a number of tokens"),
        (["--gpu-price", "0"], "--gpu-price: must be a positive number"),
    ],
)
def test_wrong_sizes_of_the_run_are_refused_before_the_search(
    files: list[str], found: dict[str, Any], option: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the option and what to write."""
    assert main(["plan", *files, *option]) == 2
    assert words in capsys.readouterr().err
    assert "problem" not in found


def test_a_plan_over_two_kinds_of_gpu_says_what_each_stage_runs_on(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """In the configuration and beside each stage's memory, and in the document that is written."""
    plan = small_plan()
    kinds = ("H100-SXM5-80GB", "A100-SXM4-80GB")
    stages = tuple(replace(stage, gpu_kind=kind) for stage, kind in zip(plan.stages, kinds, strict=True))
    found["result"] = replace(plan, stages=stages)
    assert main(["plan", *files, "--output", "plan.json"]) == 0
    assert main(["plan", *files, "--verbose"]) == 0
    out = capsys.readouterr().out
    assert "H100-SXM5-80GB under stage 0" in out
    assert "stage 1  A100-SXM4-80GB" in out
    written = plan_from_text(Path("plan.json").read_text("utf-8"))
    assert written.mixed_kinds == kinds


def test_plan_is_written_to_a_file(files: list[str], found: dict[str, Any], tmp_path: Path) -> None:
    """The file holds the document that export reads."""
    assert main(["plan", *files, "--output", "plan.json"]) == 0
    assert plan_from_text((tmp_path / "plan.json").read_text()) == small_plan()


@pytest.mark.parametrize("target", ["missing/plan.json", "."])
def test_a_file_that_cannot_be_written_is_refused_before_the_search(
    target: str, files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """No search is lost to a mistyped folder."""
    assert main(["plan", *files, "--output", target]) == 2
    assert "--output" in capsys.readouterr().err
    assert "problem" not in found


def test_no_plan_is_code_three_with_what_would_help(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason, the missing memory and the remedies stand on standard error."""
    found["result"] = small_no_plan()
    assert main(["plan", *files]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "no plan fits" in err
    assert "misses 3.50 GiB" in err
    assert "remedy: Allow full recomputation." in err
    assert main(["plan", *files, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["missing_gib"] == 3.5


def test_a_plan_that_breaks_its_rules_is_never_printed(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The independent check stands between the search and the user."""
    found["violations"] = ("Two ranks share a GPU.",)
    assert main(["plan", *files, "--json"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Two ranks share a GPU." in err


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (SolverFailed("cbc ended with code 7"), 1, "cbc ended with code 7"),
        (ZeroDivisionError("oops"), 1, "internal error: ZeroDivisionError: oops"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_failures_are_a_line_not_a_traceback(
    files: list[str],
    found: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    failure: BaseException,
    code: int,
    words: str,
) -> None:
    """Whatever breaks, the user reads one sentence."""
    found["result"] = failure
    assert main(["plan", *files]) == code
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err


def test_interrupt_ends_the_search_with_its_best(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C asks the search to stop; its best plan is printed and the exit code says interrupted."""
    asked = []

    def search(_problem: PlanningProblem, _options: SearchOptions, **callbacks: Any) -> Plan:
        asked.append(callbacks["is_cancelled"]())
        os.kill(os.getpid(), signal.SIGINT)
        asked.append(callbacks["is_cancelled"]())
        return small_plan()

    monkeypatch.setattr(solver.search, "plan", search)
    monkeypatch.setattr("app.cli.planning.planning.check_plan", lambda *_: ())
    assert main(["plan", *files, "--json"]) == 130
    assert asked == [False, True]
    assert plan_from_text(capsys.readouterr().out) == small_plan()


def test_the_real_search_is_exported_as_it_is_printed(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """From three files to a host list, with nothing replaced: the hosts are those of the plan."""
    (tmp_path / "workload.yaml").write_text(WORKLOAD + "pinned: {tensor: 4}\nmax_gpus: 8\n")
    assert main(["plan", *files, "--json"]) == 0
    out = capsys.readouterr().out
    (tmp_path / "plan.json").write_text(out)
    plan = plan_from_text(out)
    assert plan.configuration.degrees.tensor == 4
    for target in ("megatron", "torchrun", "slurm", "hostfile", "perfetto", "csv", "json"):
        assert main(["export", "plan.json", "--format", target, "--output", target]) == 0
    hosts = [line.split()[0] for line in (tmp_path / "hostfile").read_text().splitlines()]
    assert tuple(hosts) == plan.placement.hosts
    assert plan_from_text((tmp_path / "json").read_text()) == plan


def test_progress_line_says_what_matters_first() -> None:
    """Seconds, gap, best, candidates left, then the details that a narrow terminal cuts off."""
    line = progress_line(Progress(12.3, "placing", 72318, 2, 26.9, 26.7, 0.0067, "tp1 pp17")).plain
    assert line == "12 s  gap 0.67 %  best 26.90 s  2 of 72,318 candidates left  placing  (tp1 pp17)"
    serving = Progress(2.0, "choosing", 969, 969, None, None, 0.02, "8 x tp8", ServingObjective.GPUS, 64.0, 63.0)
    assert progress_line(serving).plain == "2 s  gap 2.00 %  best 64 GPUs  969 groups priced  choosing  (8 x tp8)"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"--cluster": "nowhere.yaml"}, "cannot be read"),
        ({"--model": "nowhere.json"}, "cannot be read"),
        ({"--model": "llama-9"}, "llama-3-8b"),
        ({"--workload": "cluster.yaml"}, "cluster.yaml: sequence_length: is missing"),
        ({"--time-limit": "-1"}, "--time-limit: must be a positive number"),
        ({"--time-limit": "nan"}, "--time-limit: must be a positive number"),
        ({"--gap": "2"}, "--gap: must lie in"),
        ({"--backend": "gurobi"}, "use cbc or highs"),
    ],
)
def test_bad_input_is_code_two_and_a_clear_line(
    files: list[str],
    found: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    change: dict[str, str],
    words: str,
) -> None:
    """The line names the file or option, and nothing is printed as a plan."""
    options = dict(zip(files[::2], files[1::2], strict=True)) | change
    assert main(["plan", *(word for pair in options.items() for word in pair)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert "Traceback" not in err
