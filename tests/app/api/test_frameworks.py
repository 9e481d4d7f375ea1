"""Frameworks over HTTP: what is shipped, and what a request describes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.cli import main
from app.documents.framework import FrameworkDescription
from app.documents.reading import parse_text
from app.settings import Role
from cluster_models.training.frameworks import frameworks
from tests.app.api_client import API, running
from tests.app.calibration_bodies import FRAMEWORK, calibration_document, runs_csv
from tests.app.command_files import CLUSTER, WORKLOAD
from tests.app.framework_bodies import DESCRIBED, FILE, described

CONFIGURATION = {"degrees": {"tensor": 2, "pipeline": 2, "data": 2}, "recompute": "full"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that only answers, on SQLite."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


def body(framework: object, **more: Any) -> dict[str, Any]:
    """A prediction of the problem that the command line's files hold."""
    return {
        "cluster": parse_text(CLUSTER, what="cluster"),
        "model": "llama-3-8b",
        "workload": parse_text(WORKLOAD, what="workload") | {"framework": framework},
        "configuration": CONFIGURATION,
        "timeline": True,
    } | more


def result(client: TestClient, request: dict[str, Any]) -> Any:
    """The prediction."""
    answer = client.post(f"{API}/predictions", json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def errors(client: TestClient, path: str, request: dict[str, Any]) -> list[tuple[str, str]]:
    """Field and problem of everything that a request is refused for."""
    answer = client.post(f"{API}/{path}", json=request)
    assert answer.status_code == 422, answer.text
    return [(error["field"], error["problem"]) for error in answer.json()["errors"]]


def test_a_generation_comes_with_a_description_to_start_from(client: TestClient) -> None:
    """The facts as in the list, and the same as a document under another name."""
    listed = {each["name"]: each for each in client.get(f"{API}/frameworks").json()}
    for name, known in frameworks().items():
        answer = client.get(f"{API}/frameworks/{name}").json()
        document = FrameworkDescription.model_validate(answer.pop("description"))
        assert document == FrameworkDescription.starting_from(known)
        assert answer == listed[name]
    assert client.get(f"{API}/frameworks/abacus").status_code == 404


def test_the_same_plan_comes_through_every_door(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Described in the request, by the calibration in full or stored, and in a file of the command line."""
    document = calibration_document().model_dump(mode="json") | {"descriptions": [DESCRIBED]}
    assert client.post(f"{API}/calibrations", json={"calibration": document}).json()["described"] == ["ours"]
    in_full = result(client, body(DESCRIBED, calibration=document))
    assert in_full["workload"]["framework"]["like"] == FRAMEWORK
    assert result(client, body("ours", calibration=document)) == in_full
    assert result(client, body("ours", calibration="slow")) == in_full
    monkeypatch.chdir(tmp_path)
    for name, text in (("cluster", CLUSTER), ("workload", WORKLOAD), ("ours", FILE)):
        Path(f"{name}.yaml").write_text(text)
    Path("configuration.json").write_text(json.dumps(CONFIGURATION))
    Path("slow.json").write_text(json.dumps(document))
    capsys.readouterr()
    command = ["predict", "--cluster", "cluster.yaml", "--model", "llama-3-8b", "--workload", "workload.yaml"]
    options = ["--calibration", "slow.json", "--framework-file", "ours.yaml", "--json"]
    assert main([*command, "--configuration", "configuration.json", *options]) == 0
    assert json.loads(capsys.readouterr().out) == in_full


def test_what_cannot_be_is_refused_by_its_field(client: TestClient) -> None:
    """The path leads into the description."""
    for framework, field, problem in (
        (DESCRIBED | {"like": "nemo-25.05"}, "workload.framework.like", "is not a shipped framework generation"),
        (DESCRIBED | {"name": FRAMEWORK}, "workload.framework.name", "is the name of a shipped generation"),
        (DESCRIBED | {"logit_bytes": 900}, "workload.framework.logit_bytes", "must be at most 64.0"),
        (DESCRIBED | {"dropouts": True}, "workload.framework.dropouts", "unknown field"),
        ("ours", "workload.framework", "is not a shipped generation"),
        (7, "workload.framework", "must be a mapping of fields, not a number"),
    ):
        assert errors(client, "predictions", body(framework)) == [(field, problem)]


def test_runs_of_a_described_framework_are_fitted(client: TestClient) -> None:
    """The calibration describes it, so that a plan with it may name it."""
    runs = runs_csv(sustained_share=0.5).replace(FRAMEWORK, "ours")
    request = {"name": "own", "runs": runs, "frameworks": [DESCRIBED]}
    answer = client.post(f"{API}/calibrations", json=request)
    assert answer.status_code == 201, answer.text
    (description,) = answer.json()["calibration"]["descriptions"]
    assert FrameworkDescription.model_validate(description).to_framework() == described()
    predicted = result(client, body("ours", calibration="own"))
    assert predicted["provenance"]["calibration"] == answer.json()["label"]
    assert FrameworkDescription.model_validate(predicted["workload"]["framework"]).to_framework() == described()


def test_descriptions_of_runs_are_checked_before_any_fit(client: TestClient) -> None:
    """Names without runs, runs without names, one name twice; a name unknown to all lines is one problem."""
    runs = runs_csv()
    unknown = ("lines 2-6, column framework", "is not a shipped generation")
    for more, expected in (
        ({"frameworks": [DESCRIBED]}, ("frameworks", "are those of runs")),
        ({"frameworks": [DESCRIBED], "runs": runs}, ("frameworks", "is the framework of no run")),
        ({"frameworks": [DESCRIBED] * 2, "runs": runs}, ("frameworks[1].name", "is described twice")),
        ({"runs": runs.replace(FRAMEWORK, "inhouse")}, unknown),
    ):
        assert errors(client, "calibrations", {"name": "x", **more}) == [expected]
