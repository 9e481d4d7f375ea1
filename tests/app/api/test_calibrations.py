"""Calibrations over HTTP: made, listed, used, forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.profiler.script import script_text
from app.services import subprocesses
from app.settings import Role
from tests.app.api_client import API, ended, plan_body, running
from tests.app.calibration_bodies import GPU, HEAD, LINES, calibration_document, profile_body, runs_csv

ADDRESS = f"{API}/calibrations"


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A client of an application whose solver is a stand-in."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        yield client


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[TestClient]:
    """The same on SQLite, for what takes a fit, which knows no database."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


def finished(**parameters: float) -> dict[str, Any]:
    """The body that stores a finished calibration."""
    return {"calibration": calibration_document(**parameters).model_dump(mode="json", by_alias=True)}


def test_a_finished_calibration_is_stored_listed_and_forgotten(client: TestClient) -> None:
    """It comes back as it was sent, under its name and its GPU kind, until it is deleted."""
    answer = client.post(ADDRESS, json=finished())
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"{ADDRESS}/slow"
    made = answer.json()
    assert made["gpu_kinds"] == [GPU]
    assert made["calibration"]["gpus"] == finished()["calibration"]["gpus"]
    listed = client.get(ADDRESS, params={"gpu_kind": GPU}).json()["items"]
    assert [entry["label"] for entry in listed] == [made["label"]]
    assert client.get(ADDRESS, params={"gpu_kind": "T4"}).json()["items"] == []
    assert client.get(f"{ADDRESS}/slow").json() == made
    assert client.delete(f"{ADDRESS}/slow").status_code == 204
    assert client.get(f"{ADDRESS}/slow").status_code == 404


def test_a_name_is_taken_once(client: TestClient) -> None:
    """A second calibration of the same name is refused; under another name it is welcome."""
    assert client.post(ADDRESS, json=finished()).status_code == 201
    assert client.post(ADDRESS, json=finished()).status_code == 409
    assert client.post(ADDRESS, json=finished() | {"name": "other"}).json()["name"] == "other"
    assert [entry["name"] for entry in client.get(ADDRESS, params={"limit": 1}).json()["items"]] == ["other"]


def test_a_profile_and_runs_are_fitted(client: TestClient) -> None:
    """The profile tells what is the GPU's, the runs what is the framework's."""
    body = {"name": "ours", "profile": profile_body(), "runs": runs_csv(sustained_share=0.6)}
    answer = client.post(ADDRESS, json=body)
    assert answer.status_code == 201, answer.text
    made = answer.json()["calibration"]
    told_by = {name: each["told_by"] for name, each in made["gpus"][GPU].items()}
    assert told_by["sustained_share"] == told_by["memory_share"] == "profile"
    assert made["fit"]["runs"] == 5
    assert made["fit"]["error_after_fraction"] < made["fit"]["error_before_fraction"]
    assert len(made["collectives"]) == 1


def test_what_is_wrong_is_refused_and_nothing_is_stored(embedded: TestClient) -> None:
    """Each problem names its field; the list stays empty."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "name"),
        ({"name": "x"}, "calibration"),
        ({"name": "a b"}, "name"),
        (finished(sustained_share=7.0), f"calibration.gpus.{GPU}.sustained_share.value"),
        (finished(kernel_share=0.9), f"calibration.gpus.{GPU}.kernel_share"),
        ({"name": "x", "runs": "gpu,wheels\n"}, "line 1, column 2"),
        ({"name": "x", "profile": profile_body(kind="cpu")}, "profile.device.type"),
        ({"name": "x", "profile": profile_body(device="Abacus 9")}, "profile.device.name"),
        (finished() | {"runs": "gpu\n"}, "calibration"),
        ({"name": "x", "runs": HEAD + 61 * LINES[0].format(step=9.0)}, "runs"),
    ]
    for body, field in cases:
        answer = embedded.post(ADDRESS, json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["field"] == field
    assert embedded.get(ADDRESS).json()["items"] == []


def test_a_plan_asks_for_a_calibration_by_name_or_not_at_all(client: TestClient) -> None:
    """A stored one is never used unless asked for, and an unknown name is refused."""
    client.post(ADDRESS, json=finished())
    for calibration, status in ((None, 202), ("slow", 202), ("fast", 422)):
        answer = client.post(f"{API}/plans", json=plan_body(calibration=calibration))
        assert answer.status_code == status, answer.text
    assert answer.json()["errors"][0]["field"] == "calibration"


def test_predictions_move_with_the_calibration_and_say_so(client: TestClient) -> None:
    """Slower products make a slower step; the provenance names the calibration, stored or in full."""
    label = client.post(ADDRESS, json=finished()).json()["label"]
    configuration = {"degrees": {"tensor": 2, "data": 2}, "micro_batch_sequences": 1}
    results = []
    for calibration in (None, "slow", finished()["calibration"]):
        body = plan_body(configuration=configuration, calibration=calibration)
        answer = client.post(f"{API}/predictions", json=body)
        assert answer.status_code == 200, answer.text
        results.append(answer.json()["result"])
    shipped, stored, in_full = results
    assert shipped["provenance"]["calibration"] == ""
    assert stored["provenance"]["calibration"] == label
    assert stored["time"]["step_time_s"] > shipped["time"]["step_time_s"]
    assert in_full == stored


@pytest.mark.slow
def test_the_real_solver_heeds_the_calibration(tmp_path: Path) -> None:
    """The solving process gets the parameters, and the plan survives the check."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", real_solver=True) as client:
        client.post(ADDRESS, json=finished())
        answer = client.post(f"{API}/plans", json=plan_body(calibration="slow"))
        plan = ended(client, answer.headers["Location"], within_s=120.0)
    assert plan["status"] == "succeeded", plan
    assert plan["result"]["provenance"]["calibration"].startswith("slow ")


def test_the_profiler_script_is_served_whole(client: TestClient) -> None:
    """A node fetches the file that is shipped."""
    answer = client.get("/profiler/gpu_profile.py")
    assert answer.status_code == 200
    assert answer.text == script_text()


def test_one_fit_at_a_time(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a calibration is fitted, another one is put off; finished ones are taken all the same."""
    monkeypatch.setattr(subprocesses, "PATIENCE_S", 0.0)
    with subprocesses._TURN:
        assert client.post(ADDRESS, json={"name": "x", "profile": profile_body()}).status_code == 409
        assert client.post(ADDRESS, json=finished()).status_code == 201


@pytest.mark.parametrize("errors", [(0.1, 0.0, -0.1, 9), (-1e308, 0.0, 1e308, 9), (-0.1, 0.0, 0.1, 0)])
def test_errors_that_make_no_interval_are_refused(client: TestClient, errors: tuple[float, ...]) -> None:
    """Percentiles out of order, beyond all bounds, or of no runs; nothing is stored."""
    body = finished()
    body["calibration"]["errors"] = dict(zip(("p10", "p50", "p90", "runs"), errors, strict=True))
    answer = client.post(ADDRESS, json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith("calibration.errors")
    assert client.get(ADDRESS).json()["items"] == []
