"""``meshwright experiments`` and ``POST /experiments``: runs to measure, as a table that a calibration takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.cli import main
from app.documents.training_runs import read_training_runs
from app.settings import Role
from solver.runs import predict_runs
from tests.app.api_client import API, plan_body, running


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that knows no solver process."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


def test_the_table_only_lacks_the_measurements(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Filled in with steps as predicted, it reads back as the runs that were asked for."""
    assert main(["experiments", *files, "--runs", "4", "--output", "runs.csv"]) == 0
    out = capsys.readouterr().out
    assert "Measure 4 runs" in out
    assert "meshwright calibrate --runs runs.csv" in " ".join(out.split())
    head, *lines = Path("runs.csv").read_text().splitlines()
    place = head.split(",").index("iter_time_s")
    filled = []
    for line in lines:
        cells = line.split(",")
        assert cells[place] == ""
        cells[place] = "1000"
        filled.append(",".join(cells))
    runs = read_training_runs("\n".join([head, *filled]) + "\n").runs
    assert main(["experiments", *files, "--runs", "4", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    steps = [each["predicted_step_s"] for each in document["runs"]]
    assert [each.step_s for each in predict_runs(runs)] == pytest.approx(steps, rel=0.01)


def test_too_many_are_refused(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line, with the limit."""
    assert main(["experiments", *files, "--runs", "500"]) == 2
    assert "runs: must be 1 to 50" in capsys.readouterr().err


def test_the_service_asks_alike(client: TestClient) -> None:
    """Errors shrink from run to run; a number beyond the limit is refused."""
    answer = client.post(f"{API}/experiments", json=plan_body(runs=3))
    assert answer.status_code == 200, answer.text
    document = answer.json()
    errors = [document["error_fraction"], *(each["error_fraction"] for each in document["runs"])]
    assert errors == sorted(errors, reverse=True)
    assert document["table"].startswith("id,")
    assert client.post(f"{API}/experiments", json=plan_body(runs=51)).status_code == 422
