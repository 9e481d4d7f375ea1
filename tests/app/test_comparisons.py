"""Comparisons through every door: the command line, HTTP, and the page of a plan."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app import problems
from app.api.v1 import comparisons
from app.cli import main
from app.db.engine import transaction
from app.db.status import PlanStatus
from app.documents.configuration import ConfigurationDocument, DegreesDocument
from app.documents.plan import PlanDocument
from app.resources import Service
from app.serialization import jsonable, make_snapshot
from app.services.clusters import snapshots
from app.services.planning import plans, pricing_beside, solves
from app.services.planning.predictions import predict_configuration
from cluster_models.training.plan import Plan
from cluster_models.training.workload import Recompute
from solver.problem import PlanningProblem, SearchOptions
from tests.app.web_site import site, told
from tests.plans import small_architecture, small_cluster, small_samples, small_workload

ADDRESS = "/api/v1/comparisons"


@pytest.fixture(scope="module")
def plan() -> Plan:
    """tp2 pp2 dp2 on the small cluster, priced by the real cost model."""
    snapshot = make_snapshot(small_cluster(), small_samples())
    problem = PlanningProblem(snapshot, small_architecture(), small_workload())
    degrees = DegreesDocument(tensor=2, pipeline=2, data=2)
    return predict_configuration(problem, document=ConfigurationDocument(degrees=degrees)).plan


@pytest.fixture(scope="module")
def stored(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, str]]:
    """A client of pages and API, and the id of the plan stored there."""
    with site(tmp_path_factory.mktemp("site")) as (service, browser):
        plan_id = _store(service, plan)
        app = browser.app
        assert isinstance(app, FastAPI)
        app.include_router(comparisons.router, prefix="/api/v1")
        problems.install(app)
        yield browser, plan_id


def _store(service: Service, plan: Plan) -> str:
    with transaction(service.sessions) as session:
        snapshot = snapshots.store_inline(session, cluster=small_cluster(), samples=small_samples())
        problem = PlanningProblem(snapshot, small_architecture(), small_workload())
        plan_id = plans.create_plan(session, problem=problem, options=SearchOptions())
    with transaction(service.sessions) as session:
        assert solves.finish(session, plan_id=plan_id, status=PlanStatus.SUCCEEDED, result=jsonable(plan))
    return plan_id


def test_a_plan_beside_itself_is_as_good(stored: tuple[TestClient, str], plan: Plan) -> None:
    """The same configuration, given in full, by arguments, in shorthand and as a stored plan."""
    client, plan_id = stored
    degrees = {"tensor": 2, "pipeline": 2, "data": 2}
    launch = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1"
    others: list[dict[str, Any]] = [
        {"configuration": {"degrees": degrees}},
        {"launch": launch, "name": "ours"},
        {"launch": "tp2 pp2"},
        {"plan": plan_id},
    ]
    answer = client.post(ADDRESS, json={"plan": plan_id, "others": others})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert [each["name"] for each in body["others"]] == ["tp2 pp2 dp2 mb1", "ours", *["tp2 pp2 dp2 mb1"] * 2]
    for each in body["others"]:
        assert each["time"]["step_time_s"] == pytest.approx(plan.time.step_s)
        assert each["chance_better"] == pytest.approx(0.5)
        assert each["can_be_told_apart"] is False
        assert each["verdict"][0] == "Its step takes as long as the plan's."


def test_differences_add_up_and_the_run_is_priced(stored: tuple[TestClient, str]) -> None:
    """Recomputing everything costs compute; days follow from tokens and dollars from the price."""
    client, plan_id = stored
    asked = {"plan": plan_id, "others": [{"launch": "tp2 pp2 recompute=full"}], "tokens": 1e12}
    body = client.post(ADDRESS, json=asked | {"usd_per_gpu_hour": 2.0}).json()
    own, other = body["plan"], body["others"][0]
    assert other["configuration"]["recompute"] == Recompute.FULL
    difference = other["difference"]
    total = difference.pop("step_time_s")
    assert total == pytest.approx(sum(difference.values()))
    assert difference["compute_s"] > 0
    assert other["slower_by"] == pytest.approx(total / own["time"]["step_time_s"])
    assert other["memory_margin_gib"] > own["memory_margin_gib"]
    assert own["run_days"] == pytest.approx(1e12 / own["tokens_per_s"] / 86400)
    assert own["usd_per_day"] == 2.0 * 8 * 24
    assert other["run_usd"] > own["run_usd"]


def test_large_contenders_are_priced_beside_the_web_process(
    stored: tuple[TestClient, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As predictions are; a web thread would be busy for all of them together."""
    client, plan_id = stored
    beside: list[str] = []

    def in_subprocess(function: Any, *arguments: object, what: str, **_more: object) -> Any:
        beside.append(what)
        return function(*arguments)

    monkeypatch.setattr(pricing_beside, "in_subprocess", in_subprocess)
    monkeypatch.setattr(pricing_beside, "MOST_NODES", 2 * len(small_cluster().nodes))
    for many, expected in ((2, 0), (3, 3)):
        others = [{"launch": f"tp{number}"} for number in (1, 2, 4)[:many]]
        answer = client.post(ADDRESS, json={"plan": plan_id, "others": others})
        assert answer.status_code == 200, answer.text
        assert len(beside) == expected


@pytest.mark.parametrize(
    ("other", "field"),
    [
        ({"launch": "tp3"}, "others[0].launch.dp"),
        ({"launch": "tp32 pp1 dp1"}, "others[0].launch.configuration"),
        ({"launch": "--tensor-model-parallel-size 2"}, "others[0].launch.--micro-batch-size"),
        ({"configuration": {"degrees": {"tensor": 3}}}, "others[0].configuration"),
        ({"launch": "tp2", "plan": "x"}, "others[0]"),
        ({}, "others[0]"),
    ],
)
def test_wrong_contenders_are_refused_with_their_path(
    stored: tuple[TestClient, str], other: dict[str, Any], field: str
) -> None:
    """RFC 9457 problems, and nothing priced."""
    client, plan_id = stored
    answer = client.post(ADDRESS, json={"plan": plan_id, "others": [other]})
    assert answer.status_code == 422, answer.text
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_plan_that_is_not_there_is_not_found(stored: tuple[TestClient, str]) -> None:
    """Neither as the plan nor as what is compared with it."""
    client, plan_id = stored
    for asked in ({"plan": "x", "others": [{"launch": "tp2"}]}, {"plan": plan_id, "others": [{"plan": "x"}]}):
        assert client.post(ADDRESS, json=asked).status_code == 404


def test_the_page_shows_the_same_figures(stored: tuple[TestClient, str]) -> None:
    """Verdict and tables are those of the API; what was typed stays in the form."""
    client, plan_id = stored
    address = f"/plans/{plan_id}/compare"
    assert f'href="{address}"' in client.get(f"/plans/{plan_id}").text
    assert "Your configuration" in client.get(address).text
    typed = {"launch": "tp2 pp2 recompute=full", "name": "ours", "tokens": "1T", "usd_per_gpu_hour": "2"}
    answer = client.post(address, data=typed, follow_redirects=True)
    assert answer.status_code == 200
    words = told(answer.text)
    asked = {"plan": plan_id, "others": [{"launch": typed["launch"]}], "tokens": 1e12, "usd_per_gpu_hour": 2.0}
    for sentence in client.post(ADDRESS, json=asked).json()["others"][0]["verdict"]:
        assert sentence in words
    assert "ours, beside the plan" in words
    assert "tp2 pp2 recompute=full</textarea>" in answer.text


@pytest.mark.parametrize(
    ("typed", "anchor", "words"),
    [
        ({"launch": ""}, "launch", "is missing"),
        ({"launch": "tp2 xx"}, "launch", "neither a degree nor a setting"),
        ({"launch": "tp2", "tokens": "many"}, "tokens", "not a number of tokens"),
        ({"launch": "tp2", "usd_per_gpu_hour": "-1"}, "usd_per_gpu_hour", "greater than 0"),
    ],
)
def test_problems_of_the_form_stand_at_their_fields(
    stored: tuple[TestClient, str], typed: dict[str, str], anchor: str, words: str
) -> None:
    """With everything typed still in place."""
    client, plan_id = stored
    answer = client.post(f"/plans/{plan_id}/compare", data=typed)
    assert answer.status_code == 422
    assert f'href="#{anchor}"' in answer.text
    assert words in told(answer.text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> Path:
    """A folder with the plan, its cluster and a launch script."""
    from app.documents.cluster import ClusterDocument  # noqa: PLC0415 - only here

    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(PlanDocument.from_plan(plan).model_dump_json())
    Path("cluster.json").write_text(
        ClusterDocument.from_cluster(small_cluster(), small_samples()).model_dump_json()
    )
    Path("mine.sh").write_text("torchrun train.py --tensor-model-parallel-size 4 --micro-batch-size 1\n")
    return tmp_path


def test_a_script_beside_the_plan_on_a_terminal(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict comes first, then the figures side by side."""
    assert main(["compare", "mine.sh", "tp2 pp2", "--plan", "plan.json", "--cluster", "cluster.json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    text = " ".join(out.split())
    assert text.startswith("mine.sh, beside the plan")
    assert "Its step takes as long as the plan's." in text
    assert "memory margin" in text
    assert "tp4 pp1 dp2" in text


def test_the_document_of_the_command_is_that_of_the_api(
    folder: Path, stored: tuple[TestClient, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """To the last digit."""
    client, plan_id = stored
    arguments = ["compare", "tp4", "--plan", "plan.json", "--cluster", "cluster.json", "--tokens", "1T", "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    asked = {"plan": plan_id, "others": [{"launch": "tp4", "name": "tp4"}], "tokens": 1e12}
    assert found == client.post(ADDRESS, json=asked).json()


def test_plans_alone_need_no_cluster(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their figures stand in them; a configuration needs something to be priced on."""
    assert main(["compare", "plan.json", "--plan", "plan.json"]) == 0
    assert "as long as the plan's" in capsys.readouterr().out
    assert main(["compare", "mine.sh", "--plan", "plan.json"]) == 2
    assert "--cluster: is missing" in capsys.readouterr().err


def test_a_plan_of_another_cluster_is_priced_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two configurations are compared on the same links, and the command says what it did."""
    text = Path("cluster.json").read_text().replace('"name":"two-and-a-spare"', '"name":"renamed"')
    Path("cluster.json").write_text(text)
    assert main(["compare", "tp2 pp2", "--plan", "plan.json", "--cluster", "cluster.json"]) == 0
    out, err = capsys.readouterr()
    assert "was made for another cluster; it is priced again" in err
    assert "with care" not in out


@pytest.mark.parametrize(("batch", "again"), [(8, False), (16, True)])
def test_a_plan_of_another_workload_is_priced_again(
    folder: Path, capsys: pytest.CaptureFixture[str], batch: int, again: bool
) -> None:
    """Which plan was taken among those as good is no other workload; another batch is."""
    document = json.loads(Path("plan.json").read_text())
    document["workload"]["choice"] = "fastest"
    Path("plan.json").write_text(json.dumps(document))
    Path("run.yaml").write_text(f"sequence_length: 2048\nglobal_batch_sequences: {batch}\n")
    arguments = ["compare", "tp2 pp2", "--plan", "plan.json", "--cluster", "cluster.json", "--workload", "run.yaml"]
    assert main(arguments) == 0
    assert ("another workload" in capsys.readouterr().err) is again


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("missing.sh", "is neither a file nor degrees"),
        ("tp3", "tp3: dp: is not said, and 3 ranks"),
        ("./nothing.yaml", "cannot be read"),
        ("plan.txt", "holds no launch arguments"),
    ],
)
def test_what_cannot_be_compared_is_told_in_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str], other: str, words: str
) -> None:
    """With exit code 2, and no traceback."""
    Path("plan.txt").write_text("some words\n")
    assert main(["compare", other, "--plan", "plan.json", "--cluster", "cluster.json"]) == 2
    assert words in capsys.readouterr().err


def test_without_a_plan_the_problem_is_needed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command can search for the plan itself, if it is told for what."""
    assert main(["compare", "tp2"]) == 2
    assert "give --plan PLAN_JSON, or cluster, model and workload" in capsys.readouterr().err
