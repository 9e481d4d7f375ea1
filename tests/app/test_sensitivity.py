"""Sensitivity of stored plans over HTTP and in the page; the searches themselves are tested with the solver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from app import problems
from app.api.v1 import sensitivity as routes
from app.db.engine import transaction
from app.db.status import PlanStatus
from app.serialization import jsonable, make_snapshot
from app.services.clusters import snapshots
from app.services.planning import plans, sensitivity, solves
from cluster_models.errors import InvalidInput
from cluster_models.training.framework_choices import Overlap
from cluster_models.training.plan import Plan
from cluster_models.training.sensitivity import Effect, Lever, Obstacle, Sensitivity
from solver.problem import PlanningProblem, SearchOptions
from tests.app.web_site import site, told
from tests.plans import small_architecture, small_cluster, small_plan, small_samples, small_workload

FASTEST = replace(small_plan(), workload=small_workload())
STEP_S = FASTEST.time.step_s
FASTER = replace(FASTEST, time=replace(FASTEST.time, step_s=0.8 * STEP_S))
FOUND = Sensitivity(
    front=(FASTEST,),
    effects=(
        Effect(Lever.NODE, STEP_S, FASTER, 0.75 * STEP_S),
        Effect(Overlap.TENSOR, 0.9 * STEP_S),
        Effect(Overlap.EXPERTS, obstacle=Obstacle.NO_SWITCH),
    ),
    too_few_gpus=4,
)


@pytest.fixture
def stored(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str]]:
    """A client of page and API, and the id of a plan; the analysis is one made by hand."""

    def analyse(problem: PlanningProblem, options: SearchOptions) -> Sensitivity:
        assert problem == PlanningProblem(SNAPSHOT, small_architecture(), small_workload())
        if options.time_limit_s == 1.0:
            raise InvalidInput("plan", problem.architecture.name, "does not fit")
        return FOUND

    monkeypatch.setattr(sensitivity, "analyse", analyse)
    with site(tmp_path_factory.mktemp("site")) as (service, browser):
        with transaction(service.sessions) as session:
            snapshots.store_inline(session, cluster=small_cluster(), samples=small_samples())
            problem = PlanningProblem(SNAPSHOT, small_architecture(), small_workload())
            plan_id = plans.create_plan(session, problem=problem, options=SearchOptions())
        with transaction(service.sessions) as session:
            plan: Plan = small_plan()
            assert solves.finish(session, plan_id=plan_id, status=PlanStatus.SUCCEEDED, result=jsonable(plan))
        app = browser.app
        assert isinstance(app, FastAPI)
        app.include_router(routes.router, prefix="/api/v1")
        problems.install(app)
        yield browser, plan_id


SNAPSHOT = make_snapshot(small_cluster(), small_samples())


def test_front_and_effects_are_answered(stored: tuple[TestClient, str]) -> None:
    """With the bound of each, and why a change is not possible."""
    client, plan_id = stored
    reply = client.post(f"/api/v1/plans/{plan_id}/sensitivity", json={})
    assert reply.status_code == 200, reply.text
    body = reply.json()
    assert [point["gpus"] for point in body["front"]] == [FASTEST.configuration.degrees.gpus]
    node, tensor, experts = body["effects"]
    assert node["plan"]["step_time_s"] == pytest.approx(0.8 * STEP_S)
    assert node["bound_step_time_s"] == pytest.approx(0.75 * STEP_S)
    assert (tensor["change"], tensor["plan"]) == ("overlap_tensor", None)
    assert experts["obstacle"] == "no_switch"
    assert body["too_few_gpus"] == 4


@pytest.mark.parametrize(("seconds", "field"), [(61, "time_limit_s"), (0, "time_limit_s"), (1, "plan")])
def test_what_cannot_be_worked_out_is_refused(stored: tuple[TestClient, str], seconds: int, field: str) -> None:
    """With the field that is wrong."""
    client, plan_id = stored
    reply = client.post(f"/api/v1/plans/{plan_id}/sensitivity", json={"time_limit_s": seconds})
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, field)


def test_the_page_tells_what_pays_most_and_how_to_write_it(stored: tuple[TestClient, str]) -> None:
    """The form first, then both tables and the sentences."""
    client, plan_id = stored
    page = client.get(f"/plans/{plan_id}/sensitivity")
    assert page.status_code == 200
    assert "Seconds for all searches together" in told(page.text)
    answer = client.post(f"/plans/{plan_id}/sensitivity", data={"time_limit_s": "20"}, follow_redirects=True)
    words = told(answer.text)
    for part in (
        "one more node would save 20.0 % of it, the most of all",
        "There is no plan on 4 GPUs",
        "framework_settings: {overlap_tensor: true}",
        "Not possible: expert exchange beside compute; megatron-core-0.12 has no switch for it.",
    ):
        assert part in words
    wrong = client.post(f"/plans/{plan_id}/sensitivity", data={"time_limit_s": "100"})
    assert wrong.status_code == 422
    assert "Error:" in told(wrong.text)
