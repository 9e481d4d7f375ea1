"""A calibration of serving from the table to the plan, on the command line and over HTTP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from app.documents.calibration import CalibrationDocument
from app.documents.serving_plan import any_plan_from_text
from cluster_models.errors import InvalidInput
from cluster_models.serving.plan import ServingPlan
from tests.app.api_client import API, cluster_body, running
from tests.app.command_files import CLUSTER
from tests.serving_bad_input import SOUND

HEADERS = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
HEAD = "engine,gpu,model,tp,input_tokens,output_tokens,concurrency,weights,ttft_ms,tpot_ms"
POINTS = [
    (1, 1, 40, 9.1),
    (1, 8, 60, 11.0),
    (1, 32, 120, 15.0),
    (2, 8, 50, 7.8),
    (2, 32, 90, 10.0),
    (4, 16, 70, 7.6),
]
TABLE = "\n".join(
    [HEAD, *(f"vllm-0.16,H100,llama-3.1-8b,{tp},1024,512,{load},fp8,{a},{b}" for tp, load, a, b in POINTS)]
)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibration fitted on the command line, as a file."""
    folder = tmp_path_factory.mktemp("fitted")
    (folder / "points.csv").write_text(TABLE)
    assert main(["calibrate", "--serving", str(folder / "points.csv"), "--output", str(folder / "ours.json")]) == 0
    return folder / "ours.json"


def test_a_plan_is_priced_with_own_rates_and_says_so(
    fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Slower, without the warning of an engine that was not measured, and again from its own file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "w.yaml").write_text(json.dumps(SOUND))
    plans = []
    for more in ([], ["--calibration", str(fitted)]):
        files = ["--cluster", "cluster.yaml", "--model", "llama-3.1-8b", "--workload", "w.yaml"]
        assert main(["plan", *files, "--json", *more]) == 0
        plans.append(any_plan_from_text(capsys.readouterr().out))
    shipped, own = plans
    assert isinstance(shipped, ServingPlan)
    assert isinstance(own, ServingPlan)
    assert own.provenance.calibration.startswith("ours ")
    assert own.models[0].own is not None
    assert own.tokens_per_s < shipped.tokens_per_s
    assert [each.measured_engine for each in (shipped.figures[0], own.figures[0])] == [False, True]


def test_a_stored_one_serves_requests(fitted: Path, tmp_path: Path) -> None:
    """By name, with its engine in the list; a wrong table is refused with its line and stored nowhere."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", behaviour="hang") as client:
        wrong = client.post(f"{API}/calibrations", json={"name": "ours", "serving": TABLE.replace("fp8", "fp5")})
        assert wrong.status_code == 422
        assert "lines 2-7, column weights" in wrong.json()["errors"][0]["field"]
        assert client.get(f"{API}/calibrations").json()["items"] == []
        document = json.loads(fitted.read_text())
        stored = client.post(f"{API}/calibrations", json={"calibration": document})
        assert stored.status_code == 201, stored.text
        assert (stored.json()["engines"], stored.json()["gpu_kinds"]) == (["vllm-0.16"], ["H100-SXM5-80GB"])
        assert "decode_factor" in client.get("/calibrations/ours").text
        body = {"cluster": cluster_body(), "model": "llama-3.1-8b", "workload": SOUND, "calibration": "ours"}
        assert client.post(f"{API}/plans", json=body).status_code == 202
        prediction = body | {"configuration": {"worker": {"tensor": 2}}}
        own, shipped = (
            client.post(f"{API}/serving-predictions", json=each).json()
            for each in (prediction, prediction | {"calibration": None})
        )
        assert own["time_per_output_token_ms"]["value"] > 1.2 * shipped["time_per_output_token_ms"]["value"]
        assert '<option value="ours">' in client.get("/plans/new/serving").text
        form = {"cluster_text": json.dumps(cluster_body()), "model": "llama-3.1-8b", "calibration": "ours"}
        form |= {"workload_text": json.dumps(SOUND), "modes": "aggregated"}
        asked = client.post("/plans/new/serving", data=form, headers=HEADERS, follow_redirects=False)
        again = client.get("/plans/new/serving", params={"again": asked.headers["Location"].rpartition("/")[2]})
        assert '<option value="ours" selected>' in again.text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (
            {"serving": {"vllm-9@H100-SXM5-80GB": {"points": 1, "factors": {}, "spreads": {}}}},
            "serving.vllm-9@H100",
        ),
        (
            {
                "serving": {
                    "vllm-0.16@H100-SXM5-80GB": {
                        "points": 1,
                        "factors": {"speed": {"value": 1, "low": 1, "high": 1, "steps": 1}},
                        "spreads": {},
                    }
                }
            },
            "factors.speed",
        ),
    ],
)
def test_rates_that_there_are_not_are_refused(changes: dict[str, object], field: str) -> None:
    """Engine, GPU kind and quantity by name."""
    document = CalibrationDocument.model_validate({"name": "x"} | changes)
    with pytest.raises(InvalidInput, match=field):
        document.to_fitted()
