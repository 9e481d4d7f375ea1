"""Fleet plans over HTTP, on the command line and in the pages."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.cli import main
from app.documents.model import ModelDocument
from app.documents.plan import PlanDocument
from app.example_files import examples_folder
from app.services.planning.requests import FleetDocument
from tests.app.api_client import API, cluster_body, ended, running
from tests.app.web_site import told
from tests.plans import small_architecture, small_cluster, small_plan

NAME = small_cluster().name
WORKLOAD = {"sequence_length": 2048, "global_batch_sequences": 8}
MODEL = ModelDocument.from_architecture(small_architecture()).model_dump(mode="json")
FLEET: dict[str, Any] = {
    "fleet": "work",
    "jobs": [
        {"name": "first", "model": MODEL, "workload": WORKLOAD, "weight": 2.0},
        {"name": "second", "model": MODEL, "workload": WORKLOAD, "tokens": 1e9, "deadline_days": 5, "most_gpus": 8},
    ],
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service that really solves, with the small cluster and a job that runs on it."""
    folder = tmp_path_factory.mktemp("fleet")
    with running(folder, f"sqlite:///{folder}/a.sqlite", real_solver=True) as client:
        assert client.post(f"{API}/clusters", json=cluster_body()).status_code == 201
        plan = PlanDocument.from_plan(small_plan()).model_dump(mode="json")
        job = {"name": "running", "plan": plan, "is_running": True, "weight": 3.0}
        assert client.post(f"{API}/clusters/{NAME}/jobs", json=job).status_code == 201
        yield client


def test_every_job_gets_nodes_of_its_own(client: TestClient) -> None:
    """Those too that a running job holds; the plan of each can be registered, and the page tells of all."""
    accepted = client.post(f"{API}/plans", json=FLEET | {"cluster": NAME})
    assert accepted.status_code == 202, accepted.text
    plan = ended(client, accepted.headers["Location"], within_s=120.0)
    assert (plan["kind"], plan["status"]) == ("fleet", "succeeded"), plan["error"]
    found = plan["result"]
    nodes = [node for share in found["shares"] for node in share["nodes"]]
    assert sorted(share["job"] for share in found["shares"]) == ["first", "second"]
    assert len(nodes) == len(set(nodes))
    assert found["bound"] >= found["value"] > 0
    assert {point["nodes"] for point in found["curves"]} == {1, 2, 3}
    page = told(client.get(f"/plans/{plan['id']}", headers={"accept": "text/html"}).text)
    assert "2 jobs on" in page
    assert "No fleet plan does more weighted work" in page
    assert client.get(f"{API}/plans/{plan['id']}/exports").status_code == 409
    assert client.get(f"{API}/plans/{plan['id']}/timeline").status_code == 409
    assert "exports" not in plan["links"]


def test_without_jobs_it_is_about_those_that_run(client: TestClient) -> None:
    """One that is asked for in the form; the search is called off."""
    page = client.get("/plans/new/fleet", headers={"accept": "text/html"}).text
    assert "three" in page.lower()
    form = {"cluster": NAME, "time_limit_s": "30", "fleet_text": "fleet: work"}
    headers = {"accept": "text/html", "sec-fetch-site": "same-origin"}
    sent = client.post("/plans/new/fleet", data=form, headers=headers, follow_redirects=False)
    assert sent.status_code == 303, html.unescape(sent.text)
    again = client.post("/plans/new/fleet", data=form, headers=headers, follow_redirects=False)
    assert again.headers["Location"] == sent.headers["Location"], "sent twice"
    plan = client.get(f"{API}{sent.headers['Location']}").json()
    assert (plan["kind"], plan["model"]) == ("fleet", "running")
    assert client.post(f"{API}/plans/{plan['id']}/cancel").status_code == 200
    wrong = client.post("/plans/new/fleet", data=form | {"fleet_text": "jobs: []"}, headers=headers)
    assert wrong.status_code == 422
    assert "jobs" in told(wrong.text)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"offers": [{"node_kind": "no such", "nodes": 1}], "budget_usd_per_hour": 1}, "offers[0].node_kind"),
        ({"offers": [{"node_kind": "DGX H100/H200", "nodes": 1}], "budget_usd_per_hour": 1}, "offers[0].gpu_kind"),
        ({"jobs": [FLEET["jobs"][0] | {"deadline_days": 1}]}, "jobs[0].tokens"),
        ({"jobs": [FLEET["jobs"][0] | {"model": "no such"}]}, "jobs[0].model"),
        (
            {"jobs": [FLEET["jobs"][0] | {"workload": WORKLOAD | {"roles": {"epochs": 2}}}]},
            "jobs[0].workload.roles",
        ),
        ({"jobs": [FLEET["jobs"][0]] * 2}, "jobs"),
        ({"fleet": "cost", "jobs": FLEET["jobs"][:1]}, "jobs"),
        ({"cluster": cluster_body(), "jobs": None}, "jobs"),
    ],
)
def test_what_cannot_be_planned_is_refused_at_once(client: TestClient, change: dict[str, Any], field: str) -> None:
    """The field is named."""
    answer = client.post(f"{API}/plans", json=FLEET | {"cluster": NAME} | change)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field, answer.text


def test_the_command_line_finds_one_and_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table with a proof; code 3 with a remedy where a job cannot keep its deadline."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.json").write_text(json.dumps(cluster_body()))
    (tmp_path / "fleet.json").write_text(json.dumps(FLEET))
    assert main(["fleet", "fleet.json", "--cluster", "cluster.json", "--time-limit", "30", "--verbose"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "2 jobs on" in words
    assert "No fleet plan does more weighted work by more than" in words
    late = FLEET | {"jobs": [FLEET["jobs"][1] | {"tokens": 1e15}]}
    (tmp_path / "late.json").write_text(json.dumps(late))
    assert main(["fleet", "late.json", "--cluster", "cluster.json", "--json"]) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["reason"] == "deadline"
    assert "second cannot keep its deadline" in err


def test_the_shipped_fleet_is_valid() -> None:
    """Whoever opens the form sees it."""
    import yaml  # noqa: PLC0415 - only here

    folder = examples_folder()
    assert folder is not None
    text = (folder / "fleets" / "three-jobs.yaml").read_text()
    document = FleetDocument.model_validate(yaml.safe_load(text))
    assert re.findall(r"name: (\w+)", text) == [job.name for job in document.jobs or ()]
