"""One question of serving over HTTP, on the command line and in the form, through real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from app.cli import main
from tests.e2e.processes import REPOSITORY, Deployment, service, wait_until

CLUSTER = REPOSITORY / "examples/clusters/two-nodes.yaml"
WORKLOAD = REPOSITORY / "examples/workloads/serving-llama-3.1-8b-cheapest.yaml"
MODEL = "llama-3.1-8b"


@pytest.mark.slow
def test_http_command_line_and_form_give_the_same_serving_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the last digit; the launch file over HTTP is the command line's, and the page shows it."""
    files = ["--cluster", str(CLUSTER), "--model", MODEL, "--workload", str(WORKLOAD)]
    assert main(["plan", *files, "--json", "--output", str(tmp_path / "plan.json")]) == 0
    by_hand = json.loads(capsys.readouterr().out)
    assert by_hand["certificate"]["stopped_by"] == "proven"
    assert main(["export", str(tmp_path / "plan.json"), "--format", "sglang"]) == 0
    script = capsys.readouterr().out
    environment = {"MESHWRIGHT_DATA_DIR": str(tmp_path / "data"), "PYTHONPATH": str(REPOSITORY)}
    shared = Deployment(environment, tmp_path / "ledger", tmp_path / "log")
    with service(shared) as (_, client):
        workload = yaml.safe_load(WORKLOAD.read_text())
        body = {"cluster": yaml.safe_load(CLUSTER.read_text()), "model": MODEL, "workload": workload}
        asked = client.post("/api/v1/plans", json=json.loads(json.dumps(body, default=str)))
        assert asked.status_code == 202, asked.text
        typed = client.post(
            "/plans/new/serving",
            data=_form(workload),
            headers={"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"},
        )
        assert typed.status_code == 303, typed.text
        page = httpx2.URL(typed.headers["Location"]).path
        for address in (asked.headers["Location"], f"/api/v1{page}"):
            wait_until(lambda where=address: _finished(client, where), shared)
            assert client.get(address).json()["result"] == by_hand
            assert client.get(f"{address}/exports/sglang").text == script
        shown = client.get(page).text
        assert "sglang.launch_server" in shown
        assert "Latencies against limits" in shown


def _form(workload: dict[str, Any]) -> dict[str, Any]:
    """The fields that a browser sends for a workload file, the form's other fields as they stand there."""
    fixed = {"cluster_text": CLUSTER.read_text(), "model": MODEL, "time_limit_s": "60", "effort": "1"}
    return fixed | {"modes": ["aggregated", "split"]} | {name: str(value) for name, value in workload.items()}


def _finished(client: httpx2.Client, address: str) -> bool:
    plan = client.get(address).json()
    assert plan["status"] in {"queued", "running", "succeeded"}, plan
    return bool(plan["status"] == "succeeded")
