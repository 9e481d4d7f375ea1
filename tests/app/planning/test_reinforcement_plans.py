"""Joint plans of reinforcement learning over HTTP, on the command line, in pages and as launch files."""

from __future__ import annotations

import html
import io
import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fastapi.testclient import TestClient

from app.cli import main
from app.cli.planning import reinforcement
from app.documents.model import ModelDocument
from app.documents.reinforcement import ReinforcementWorkloadDocument
from app.documents.reinforcement_plan import ReinforcementPlanDocument, exported_plan_from_text
from app.example_files import examples_folder
from app.exports.reinforcement import JOINT_FORMATS
from app.exports.verl import render_verl, settings_of
from app.jobs import solve_child
from app.presentation.reinforcement import refusal, step_rows
from app.serialization import jsonable, load, make_snapshot
from app.services.planning.reinforcement_plans import reinforcement_problem
from cluster_models.errors import InvalidConfiguration
from cluster_models.reinforcement.plan import (
    NoReinforcementPlan,
    ReinforcementPlan,
    SharedMemory,
    Split,
    SplitEnd,
)
from cluster_models.reinforcement.workload import Arrangement
from cluster_models.serving.workload import Speculation
from cluster_models.training.roles import Roles
from cluster_models.training.run_settings import RunSettings
from solver.problem import SearchOptions
from tests.app.api_client import API, cluster_body, ended, running
from tests.app.web_site import told
from tests.plans import small_architecture, small_cluster, small_provenance, small_samples

NAME = small_cluster().name
MODEL = ModelDocument.from_architecture(small_architecture()).model_dump(mode="json")
WORKLOAD: dict[str, Any] = {
    "kind": "reinforcement",
    "prompts": 16,
    "samples_per_prompt": 4,
    "prompt_tokens": 128,
    "response_tokens": {"histogram": [[20, 3], [60, 1]]},
    "updates": 2,
    "staleness_steps": 1,
    "training": {
        "framework": "megatron-bridge-26.02",
        "recompute": ["none"],
        "pinned": {"context": 1, "tensor": 1, "pipeline": 1},
    },
    "rollout": {"pinned": {"pipeline": 1, "tensor": 1}},
}
ASKED = {"cluster": NAME, "model": MODEL, "workload": WORKLOAD, "options": {"time_limit_s": 60}}


@pytest.fixture(scope="module")
def found() -> ReinforcementPlan:
    """The plan that the solving process finds: the one search of these tests."""
    snapshot = make_snapshot(small_cluster(), small_samples())
    document = ReinforcementWorkloadDocument.model_validate(WORKLOAD)
    problem = reinforcement_problem(snapshot, small_architecture(), document, None)
    message = {
        "snapshot": jsonable(snapshot),
        "reinforcement": jsonable(problem.workload),
        "architecture": jsonable(problem.architecture),
        "options": jsonable(SearchOptions(time_limit_s=60.0)),
    }
    progress = io.StringIO()
    told = solve_child.work(message, progress)
    assert told["kind"] == "plan", told
    assert '"phase": "splits"' in progress.getvalue()
    return load(ReinforcementPlan, told["plan"])


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, found: ReinforcementPlan) -> Iterator[TestClient]:
    """A service with the small cluster, whose solver answers with that plan."""
    folder = tmp_path_factory.mktemp("reinforcement")
    with running(folder, f"sqlite:///{folder}/a.sqlite") as client:
        (folder / "plan.json").write_text(json.dumps(jsonable(found)))
        assert client.post(f"{API}/clusters", json=cluster_body()).status_code == 201
        yield client


@pytest.fixture(scope="module")
def answer(client: TestClient) -> dict[str, Any]:
    """The plan as the service tells it."""
    accepted = client.post(f"{API}/plans", json=ASKED)
    assert accepted.status_code == 202, accepted.text
    plan = ended(client, accepted.headers["Location"], within_s=120.0)
    assert (plan["kind"], plan["status"]) == ("reinforcement", "succeeded"), plan["error"]
    return plan


def test_both_parts_have_their_nodes(client: TestClient, answer: dict[str, Any]) -> None:
    """The step follows from the parts; the page tells of both; formats are listed, one of another kind is none."""
    found = answer["result"]
    time, certificate = found["time"], found["certificate"]
    both = (time["rollout_s"], time["training_s"])
    together = max(both) if time["is_overlapped"] else sum(both)
    assert time["step_s"] == pytest.approx(together + time["weights_s"] + time["offload_s"])
    assert certificate["bound_s"] <= certificate["step_s"] == time["step_s"]
    assert found["training"]["result"] == "plan"
    assert found["serving"]["result"] == "serving_plan"
    assert found["training_nodes"]
    assert [split["end"] for split in found["splits"]].count("chosen") == 1
    page = told(client.get(f"/plans/{answer['id']}", headers={"accept": "text/html"}).text)
    assert "a step of 64 responses" in page
    assert "fitted to no measured run" in page
    assert "the plan is for vLLM 0.15 to 0.19; name the engine" in page
    formats = client.get(f"{API}/plans/{answer['id']}/exports").json()
    assert [each["name"] for each in formats] == list(JOINT_FORMATS)
    engine = client.get(f"{API}/plans/{answer['id']}/exports/vllm")
    assert "vllm serve" in engine.text
    assert client.get(f"{API}/plans/{answer['id']}/exports/torchrun").status_code == 404
    assert client.get(f"{API}/plans/{answer['id']}/timeline").status_code == 409
    again = client.get(f"/plans/new?again={answer['id']}", headers={"accept": "text/html"}).text
    assert "samples_per_prompt: 4" in again
    assert f'<option value="{NAME}" selected' in again
    assert "tiny-4 is not stored: choose one" in again


def test_the_document_is_read_back(answer: dict[str, Any]) -> None:
    """Answers of the service become the plan again, bounds that are none included."""
    again = ReinforcementPlanDocument.model_validate(answer["result"]).to_value()
    assert ReinforcementPlanDocument.from_plan(again).model_dump(mode="json") == answer["result"]


def test_verl_is_told_what_was_planned(answer: dict[str, Any]) -> None:
    """Every setting is a line of the script; the nodes are named, and what has no key is said."""
    plan = exported_plan_from_text(json.dumps(answer["result"]))
    assert isinstance(plan, ReinforcementPlan)
    settings, degrees = settings_of(plan), plan.training.configuration.degrees
    text = render_verl(plan)
    assert settings["actor_rollout_ref.actor.megatron.tensor_model_parallel_size"] == degrees.tensor
    assert settings["actor_rollout_ref.actor.ppo_mini_batch_size"] == 8
    assert settings["actor_rollout_ref.rollout.n"] == 4
    worker = plan.serving.replicas[0].worker
    assert settings["actor_rollout_ref.rollout.tensor_model_parallel_size"] == worker.tensor
    assert all(f"    {name}={'null' if value is None else value} \\\n" in text for name, value in settings.items())
    assert "# not expressed: which node plays which part" in text
    assert " ".join(plan.training_nodes) in text
    assert "settings of Megatron-Core" not in text
    chosen = replace(plan.training.configuration, settings=RunSettings(overlap_tensor=True))
    said = render_verl(replace(plan, training=replace(plan.training, configuration=chosen)))
    assert "# not expressed: settings of Megatron-Core that were chosen (overlap tensor on)" in said


def test_drafts_of_the_rollout_are_written_or_named(found: ReinforcementPlan) -> None:
    """As keys where the policy predicts several tokens, else as what has no key."""
    rollout = replace(found.workload.rollout, speculation=Speculation(2, 1.5))
    plan = replace(found, workload=replace(found.workload, rollout=rollout))
    assert "# not expressed: speculation of 2 tokens" in render_verl(plan)
    several = replace(plan, architecture=replace(plan.architecture, prediction_layers=1))
    assert settings_of(several)["actor_rollout_ref.model.mtp.num_speculative_tokens"] == 2
    assert "speculation" not in render_verl(several)


def test_critic_and_reward_model_are_cut_as_the_policy(found: ReinforcementPlan) -> None:
    """PPO in veRL's keys, every one of which its configuration has; the answer says the roles again."""
    roles, training = Roles(critic=True, reward_model=True, epochs=3), found.workload.training
    workload = replace(found.workload, training=replace(training, roles=roles))
    plan = replace(found, workload=workload)
    settings, tensor = settings_of(plan), plan.training.configuration.degrees.tensor
    assert (settings["algorithm.adv_estimator"], settings["actor_rollout_ref.actor.ppo_epochs"]) == ("gae", 3)
    assert settings["critic.enable"] is settings["reward_model.enable"] is True
    for role in ("critic", "reward_model"):
        assert settings[f"{role}.megatron.tensor_model_parallel_size"] == tensor
    assert 'critic.model.path="$CRITIC_MODEL_PATH"' in render_verl(plan)
    assert "2 updates in 3 epochs of policy and critic, beside a reward model, each" in " ".join(
        list(step_rows(plan))[1]
    )
    document = ReinforcementWorkloadDocument.from_value(workload, small_architecture())
    assert document.to_value().training.roles == roles


def test_verl_refuses_what_it_cannot_do(answer: dict[str, Any]) -> None:
    """Nodes apart in turns, and trainers that are not on Megatron-Core."""
    apart = answer["result"] | {
        "arrangement": "separate",
        "workload": answer["result"]["workload"] | {"staleness_steps": 0},
    }
    other = answer["result"]["workload"]
    other = answer["result"] | {
        "workload": other | {"training": other["training"] | {"framework": "automodel-2025"}}
    }
    for document, reason in ((apart, "a step old"), (other, "Megatron-Core alone")):
        with pytest.raises(InvalidConfiguration, match=reason):
            render_verl(ReinforcementPlanDocument.model_validate(document).to_value())


def test_the_form_asks_for_one(client: TestClient) -> None:
    """With an example; what is wrong is said beside the form."""
    page = client.get("/plans/new/reinforcement", headers={"accept": "text/html"}).text
    assert "kind: reinforcement" in page
    form = {
        "cluster": NAME,
        "model": "llama-3.1-8b",
        "time_limit_s": "30",
        "workload_text": yaml.safe_dump(WORKLOAD),
    }
    headers = {"accept": "text/html", "sec-fetch-site": "same-origin"}
    sent = client.post("/plans/new/reinforcement", data=form, headers=headers, follow_redirects=False)
    assert sent.status_code == 303, html.unescape(sent.text)
    again = client.post("/plans/new/reinforcement", data=form, headers=headers, follow_redirects=False)
    assert again.headers["Location"] == sent.headers["Location"], "sent twice"
    plan = client.get(f"{API}{sent.headers['Location']}").json()
    assert (plan["kind"], plan["model"]) == ("reinforcement", "llama-3.1-8b")
    assert client.post(f"{API}/plans/{plan['id']}/cancel").status_code == 200
    wrong = form | {"workload_text": yaml.safe_dump(WORKLOAD | {"prompts": 0})}
    refused = client.post("/plans/new/reinforcement", data=wrong, headers=headers)
    assert refused.status_code == 422
    assert "prompts" in told(refused.text)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"samples_per_prompt": 0}, "workload.samples_per_prompt"),
        ({"updates": 3}, "workload.updates"),
        ({"roles": {"epochs": 0}}, "workload.roles.epochs"),
        ({"roles": {"critic": True}, "training": {"offload": ["optimizer"]}}, "workload.roles"),
        ({"rollout": {"engine": "no such"}}, "workload.rollout.engine"),
        ({"rollout": {"pinned": {"tensor": 64}}}, "workload.rollout.pinned"),
        ({"training": {"framework": "no such"}}, "workload.training.framework"),
        ({"training": {"adapters": {"rank": 8}}}, "workload.training.adapters"),
        ({"context_tokens": 150}, "workload.context_tokens"),
        ({"response_tokens": {"histogram": [[10, 0]]}}, "workload.response_tokens"),
        ({"avoid_nodes": ["no such"]}, "workload.avoid_nodes"),
        ({"staleness_steps": 2}, "workload.staleness_steps"),
        ({"arrangements": ["colocated"]}, "workload.staleness_steps"),
        ({"batch": 5}, "workload.batch"),
    ],
)
def test_what_cannot_be_planned_is_refused_at_once(client: TestClient, change: dict[str, Any], field: str) -> None:
    """The field is named as users write it, and nothing is queued."""
    asked = ASKED | {"workload": WORKLOAD | change}
    told_of = client.post(f"{API}/plans", json=asked)
    assert told_of.status_code == 422, told_of.text
    assert told_of.json()["errors"][0]["field"].startswith(field), told_of.text


def test_only_plans_are_made_of_it(client: TestClient) -> None:
    """Outlooks, predictions and the like say so at the workload."""
    for path in ("outlooks", "predictions"):
        refused = client.post(f"{API}/{path}", json={"cluster": NAME, "model": MODEL, "workload": WORKLOAD})
        assert refused.status_code == 422
        problem = next(each for each in refused.json()["errors"] if each["field"] == "workload")
        assert "reinforcement learning, of which plans are made" in problem["problem"]


def test_the_command_line_shows_one_and_says_why_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    found: ReinforcementPlan,
) -> None:
    """Tables with a proof; code 3 with a remedy where nothing fits, 2 for options of other kinds."""

    def interrupted(*_: object, **__: object) -> ReinforcementPlan:
        signal.raise_signal(signal.SIGINT)
        return found

    monkeypatch.chdir(tmp_path)
    for name, content in (("cluster", cluster_body()), ("model", MODEL), ("rl", WORKLOAD)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    command = ["plan", "--cluster", "cluster.json", "--model", "model.json", "--workload", "rl.json"]
    with monkeypatch.context() as patched:
        patched.setattr(reinforcement, "plan_reinforcement", lambda *_, **__: found)
        assert main([*command, "--verbose", "--output", "plan.json"]) == 0
        patched.setattr(reinforcement, "plan_reinforcement", interrupted)
        assert main([*command, "--json"]) == 130, "interrupted, with the best until then"
    words = " ".join(capsys.readouterr().out.split())
    assert "a step of 64 responses" in words
    assert "Ways to share the nodes out" in words
    capsys.readouterr()
    assert main(["export", "plan.json", "--format", "verl"]) == 0
    assert "verl.experimental.one_step_off_policy.main_ppo" in capsys.readouterr().out
    assert main(["export", "plan.json", "--format", "torchrun"]) == 2
    assert main([*command, "--robust"]) == 2
    full = WORKLOAD | {"training": WORKLOAD["training"] | {"memory_headroom_fraction": 0.99}}
    (tmp_path / "rl.json").write_text(json.dumps(full))
    capsys.readouterr()
    assert main([*command, "--json"]) == 3
    out, err = capsys.readouterr()
    assert {split["end"] for split in json.loads(out)["splits"]} == {"no_training"}
    assert "the trainer fits on no number of nodes" in err


def test_in_turns_on_the_same_gpus(found: ReinforcementPlan) -> None:
    """The engine's share and the states that leave, in words and as settings of veRL's hybrid engine."""
    memory = SharedMemory(80e9, 10e9, 0.0, 4e9, 0.7)
    shared = replace(found, arrangement=Arrangement.COLOCATED, memory=memory)
    assert "verl.trainer.main_ppo" in render_verl(shared)
    assert settings_of(shared)["actor_rollout_ref.rollout.free_cache_engine"] is True
    assert list(step_rows(shared))[-1][2].startswith("no states leave the GPUs")
    offloaded = replace(shared, memory=replace(memory, offloaded_bytes=20e9))
    assert settings_of(offloaded)["actor_rollout_ref.actor.megatron.param_offload"] is True
    assert "leave a GPU and come back" in list(step_rows(offloaded))[-1][2]


def test_a_refusal_names_what_would_help() -> None:
    """An engine that does not fit on nodes of its own is not told to take such nodes."""
    apart = Split(Arrangement.SEPARATE, 1, 2, False, 1.0, None, None, SplitEnd.NO_ROLLOUT)
    for splits, words in (
        ((apart,), "allow colocated"),
        ((replace(apart, arrangement=Arrangement.COLOCATED),), "allow separate"),
    ):
        assert words in refusal(NoReinforcementPlan(splits, small_provenance()))[1]


def test_the_shipped_example_is_valid() -> None:
    """Whoever opens the form sees it; as a value and back it stays the same."""
    folder = examples_folder()
    assert folder is not None
    text = (folder / "workloads" / "reinforcement-llama-3.1-8b.yaml").read_text()
    value = ReinforcementWorkloadDocument.model_validate(yaml.safe_load(text)).to_value()
    again = ReinforcementWorkloadDocument.from_value(value, small_architecture()).to_value()
    assert again == value
