"""One question over HTTP, on the command line and in the form: own calibration and framework, choice of links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from app.cli import main
from app.web.planning.form import blank
from tests.app.calibration_bodies import calibration_document
from tests.app.framework_bodies import DESCRIBED
from tests.e2e.processes import REPOSITORY, Deployment, service, wait_until

CLUSTER = REPOSITORY / "examples/clusters/two-nodes.yaml"
WORKLOAD = REPOSITORY / "examples/workloads/llama-3-8b-small.yaml"
MODEL = "llama-3-8b"


@pytest.mark.slow
def test_http_command_line_and_form_give_the_same_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Everything but the timeline, which the service keeps at an address of its own, is equal to the last digit."""
    own = calibration_document().model_dump(mode="json")
    (tmp_path / "own.json").write_text(json.dumps(own))
    workload = yaml.safe_load(WORKLOAD.read_text()) | {"link_bandwidth": "pessimistic", "framework": DESCRIBED}
    (tmp_path / "workload.yaml").write_text(yaml.safe_dump(workload))
    files = ["--cluster", str(CLUSTER), "--model", MODEL, "--workload", str(tmp_path / "workload.yaml")]
    files += ["--calibration", str(tmp_path / "own.json")]
    assert main(["plan", *files, "--json"]) == 0
    by_hand = _without_timeline(json.loads(capsys.readouterr().out))
    assert by_hand["provenance"]["link_bandwidth"] == "pessimistic"
    assert by_hand["workload"]["framework"]["name"] == DESCRIBED["name"]
    assert by_hand["robustness"]["rivals"]
    environment = {"MESHWRIGHT_DATA_DIR": str(tmp_path / "data"), "PYTHONPATH": str(REPOSITORY)}
    shared = Deployment(environment, tmp_path / "ledger", tmp_path / "log")
    with service(shared) as (_, client):
        cluster = yaml.safe_load(CLUSTER.read_text())
        body = json.loads(json.dumps({"cluster": cluster, "model": MODEL, "workload": workload}, default=str))
        assert client.post("/api/v1/calibrations", json={"calibration": own}).status_code == 201
        body["calibration"] = own["name"]
        asked = client.post("/api/v1/plans", json=body)
        assert asked.status_code == 202, asked.text
        typed = client.post(
            "/plans/new",
            data=_form(workload),
            headers={"Origin": str(client.base_url).rstrip("/"), "Sec-Fetch-Site": "same-origin"},
        )
        assert typed.status_code == 303, typed.text
        page = "/api/v1" + httpx2.URL(typed.headers["Location"]).path
        for address in (asked.headers["Location"], page):
            wait_until(lambda where=address: _finished(client, where), shared)
            assert _without_timeline(client.get(address).json()["result"]) == by_hand
        assert main(["--server", str(client.base_url), "plan", *files, "--json"]) == 0
        assert _without_timeline(json.loads(capsys.readouterr().out)) == by_hand


def _form(workload: dict[str, Any]) -> dict[str, Any]:
    """The fields that a browser sends for a workload file, the form's other fields as they stand there."""
    return (
        blank(time_limit_s=60)
        | {
            "cluster_text": CLUSTER.read_text(),
            "model": MODEL,
            "calibration": "slow",
            "framework_text": yaml.safe_dump(workload["framework"]),
        }
        | {name: str(value) for name, value in workload.items() if name != "framework"}
    )


def _finished(client: httpx2.Client, address: str) -> bool:
    plan = client.get(address).json()
    assert plan["status"] in {"queued", "running", "succeeded"}, plan
    return bool(plan["status"] == "succeeded")


def _without_timeline(plan: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in plan.items() if name != "timeline"}
