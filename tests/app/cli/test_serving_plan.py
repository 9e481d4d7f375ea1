"""``meshwright plan`` and ``export`` for serving: what they print, where, and with which exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from app.cli.planning.serving_plan_view import MOST_POINTS, shown_points
from app.documents.serving_plan import any_plan_from_text
from app.presentation.serving_tables import FrontRow, front_rows
from cluster_models.errors import SolverFailed
from cluster_models.serving.goal import ServingObjective
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.training.plan import StopReason
from solver.problem import SearchOptions
from solver.serving.problem import ServingProblem
from tests.app.command_files import CLUSTER
from tests.app.command_files import WORKLOAD as TRAINING
from tests.serving_bad_input import BAD, changed
from tests.serving_plans import nothing_serves, split_phases, two_replicas

WORKLOAD = "kind: serving\ninput_tokens: 1024\noutput_tokens: 512\nconcurrency: 16\nweights: fp8\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that name a small cluster, model and workload of serving, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    return ["--cluster", "cluster.yaml", "--model", "llama-3.1-8b", "--workload", "workload.yaml"]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Replaces the planner by one that returns ``found["result"]`` and notes what it was asked."""
    seen: dict[str, Any] = {"result": two_replicas(), "violations": ()}

    def plan(problem: ServingProblem, options: SearchOptions, **callbacks: Any) -> ServingPlan | NoServingPlan:
        seen.update(problem=problem, options=options, **callbacks)
        if isinstance(seen["result"], BaseException):
            raise seen["result"]
        return seen["result"]  # type: ignore[no-any-return]  # what a test put in

    monkeypatch.setattr("app.cli.planning.serving_planning.plan_serving", plan)
    monkeypatch.setattr("app.cli.planning.serving_planning.check_serving_plan", lambda *_: seen["violations"])
    return seen


def test_routing_files_become_counts_of_the_workload(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """By workload, with slots for copies; slots without counts are refused."""
    counts = {"prefill": [[1] * 127 + [2]] * 2, "decode": [[1] * 128] * 2}
    Path("counts.json").write_text(json.dumps(counts))
    command = ["plan", *files, "--model", "qwen3-30b-a3b", "--redundant", "16"]
    assert main(command) == 2
    assert "give --routing as well" in capsys.readouterr().err
    assert main([*command, "--routing", "counts.json"]) == 0
    routing = found["problem"].models[0].workload.routing
    assert routing.slots(8) == 144
    assert routing.of_phase("prefill")[0].loads[0] == (*[1.0] * 127, 2.0)
    assert len(routing.of_phase("decode")) == 1


def test_the_answer_leads_with_the_decision(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Then latencies against limits, the command that starts it, memory, proof, what lost and the front."""
    assert main(["plan", *files, "--verbose"]) == 0
    screen = capsys.readouterr().out
    parts = (
        "tiny-4: 2 replicas of tp2 for prefill and decode, 2 GPUs each on a",
        "2,048 output tokens/s",
        "Latencies",
        "met",
        "meshwright export PLAN.json --format vllm --output vllm.sh",
        "Memory of each GPU",
        "At most 6.25 % from the best",
        "Idle GPUs",
        "What lost, and why",
        "Throughput against speed for each user",
        "Who sits where",
    )
    places = [screen.index(part) for part in parts]
    assert places == sorted(places)


def test_json_and_output_are_the_plan(
    files: list[str], found: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing else, and it comes back from the file."""
    assert main(["plan", *files, "--json", "--output", "plan.json"]) == 0
    out, err = capsys.readouterr()
    assert any_plan_from_text(out) == any_plan_from_text((tmp_path / "plan.json").read_text()) == two_replicas()
    assert err == ""


def test_exports_lie_in_folders_of_their_names(
    files: list[str], found: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that cannot take the plan say why in a line."""
    assert main(["plan", *files, "--exports", "out"]) == 0
    assert "serve 1 a 2,3 vllm serve" in (tmp_path / "out/vllm/vllm.sh").read_text()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "dynamo",
        "json",
        "llm-d",
        "lws",
        "nginx",
        "vllm",
    ]
    assert "sglang cannot take it" in capsys.readouterr().out


def test_options_go_over_the_file(files: list[str], found: dict[str, Any], tmp_path: Path) -> None:
    """Objective, GPUs, pins and further models."""
    (tmp_path / "small.yaml").write_text(WORKLOAD + "objective_weight: 2.0\n")
    more = ["--objective", "gpus", "--max-gpus", "6", "--pin", "tensor=2", "--also", "llama-3.1-70b=small.yaml"]
    assert main(["plan", *files, *more, "--seed", "7"]) == 0
    problem = found["problem"]
    assert problem.goal.objective is ServingObjective.GPUS
    assert (problem.goal.max_gpus, problem.goal.pinned) == (6, {"tensor": 2})
    assert [model.architecture.name for model in problem.models] == ["llama-3.1-8b", "llama-3.1-70b"]
    assert problem.models[1].weight == 2.0
    assert found["options"].seed == 7


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--objective", "fun"], "objective: must be one of"),
        (["--pin", "tensor=3"], "pinned.tensor: must divide"),
        (["--pin", "tensor"], "is not NAME=NUMBER"),
        (["--pin", "data=2"], "unknown degree"),
        (["--also", "llama-3.1-8b"], "is not MODEL=FILE"),
        (["--tokens", "15T"], "--tokens: belongs to training"),
        (["--robust"], "--robust: belongs to training"),
        (
            ["--workload", "training.yaml", "--objective", "gpus"],
            "--objective: belongs to workloads of serving (got 'gpus')",
        ),
        (
            ["--workload", "training.yaml", "--pin", "tensor=8"],
            "--pin: belongs to workloads of serving (got 'tensor=8')",
        ),
    ],
)
def test_bad_input_is_one_line(
    files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    """Field, value and remedy; exit code 2, nothing printed."""
    (tmp_path / "training.yaml").write_text(TRAINING)
    assert main(["plan", *files, *more]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert len(captured.err.strip().splitlines()) == 1


@pytest.mark.parametrize(("changes", "field", "words"), BAD.values(), ids=BAD)
def test_a_workload_that_cannot_be_is_one_line(
    files: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    field: str,
    words: str,
) -> None:
    """Field, value and remedy; exit code 2, nothing printed, nothing written."""
    (tmp_path / "workload.yaml").write_text(yaml.safe_dump(changed(changes)))
    assert main(["plan", *files, "--output", "plan.json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.strip().splitlines()) == 1
    assert field in captured.err
    assert words in captured.err
    assert "(got " in captured.err or words == "has no requests"
    assert not (tmp_path / "plan.json").exists()


def test_nothing_serves_is_code_three(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Why, what comes nearest and what would help; as JSON the same with codes."""
    found["result"] = nothing_serves()
    assert main(["plan", *files]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "nothing meets the limit on the time per output token of tiny-4" in captured.err
    assert "nearest is tp4 on H100-SXM5-80GB" in captured.err
    assert "remedy: raise time_per_output_token_ms to 7.82" in captured.err
    assert main(["plan", *files, "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["reason"] == "token_limit"


def test_our_own_faults_are_code_one(
    files: list[str], found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan that breaks its rules is not handed out."""
    found["violations"] = ("a GPU is used twice",)
    assert main(["plan", *files]) == 1
    assert "breaks its own rules: a GPU is used twice" in capsys.readouterr().err
    found["result"] = SolverFailed("no plan was seen")
    assert main(["plan", *files]) == 1


def test_export_writes_what_the_plan_is_for(
    files: list[str], found: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its format; those of training are refused, and a refusal has nothing to export."""
    assert main(["plan", *files, "--json", "--output", "plan.json"]) == 0
    capsys.readouterr()
    assert main(["export", "plan.json", "--format", "vllm", "--set", "model_path=/w"]) == 0
    assert "vllm serve /w --tensor-parallel-size 2" in capsys.readouterr().out
    assert main(["export", "plan.json", "--format", "slurm"]) == 2
    assert "is for plans of training" in capsys.readouterr().err
    found["result"] = nothing_serves()
    main(["plan", *files, "--output", "none.json"])
    assert main(["export", "none.json", "--format", "vllm"]) == 2
    assert "nothing to export" in capsys.readouterr().err


def test_the_real_planner_answers(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Eight GPUs of two nodes, with a proof and a launch file for each replica."""
    assert main(["plan", *files, "--json"]) == 0
    plan = any_plan_from_text(capsys.readouterr().out)
    assert isinstance(plan, ServingPlan)
    assert plan.certificate.stopped_by is StopReason.PROVEN
    assert 0 < plan.gpus <= 8


def test_a_long_front_is_shortened() -> None:
    """Evenly, with what was chosen."""
    (chosen, *_) = [row for row in front_rows(split_phases()) if row.verdict == "chosen"]
    rows = [replace(chosen, concurrency=str(index), verdict="within the limits") for index in range(100)]
    rows[41] = chosen
    shown, hidden = shown_points(rows)
    assert chosen in shown
    assert len(shown) <= MOST_POINTS + 1
    assert (shown[0], shown[-1]) == (rows[0], rows[-1])
    assert len(shown) + hidden == 100
    assert all(isinstance(row, FrontRow) for row in shown)
