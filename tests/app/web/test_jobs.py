"""Pages of jobs: a plan is run as one, its steps are taken, and its policy is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import FormData

from app.db.engine import transaction
from app.db.status import JobStanding, PlanStatus, RunningPlanStatus
from app.documents.cluster import ClusterDocument
from app.resources import Service
from app.serialization import jsonable
from app.services.clusters import clusters, snapshots
from app.services.planning import plans, solves
from app.services.running import occupancy, running_jobs, running_plans
from app.services.running.running_jobs import JobRecord
from app.web.failures import recovery_form
from app.web.forms import FormProblem, sent_words
from cluster_models.jobs.running import RecoveryPolicy
from solver.problem import PlanningProblem, SearchOptions
from tests.app.running_rows import CLUSTER, add_cluster, add_job
from tests.app.web_site import FOREIGN, box, buttons, chosen, site, ticked, told, where
from tests.plans import small_architecture, small_cluster, small_no_plan, small_plan, small_samples, small_workload

Site = tuple[Service, TestClient]
NAME = "two-and-a-spare"


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Site]:
    """A service with the small cluster."""
    with site(tmp_path) as (service, browser):
        with transaction(service.sessions) as session:
            document = ClusterDocument.from_cluster(small_cluster(), small_samples())
            clusters.create_cluster(session, document=document)
        yield service, browser


@pytest.fixture
def plan_id(pages: Site) -> str:
    """The small plan, finished."""
    return _planned(pages[0], PlanStatus.SUCCEEDED, jsonable(small_plan()))


def _planned(service: Service, status: PlanStatus, result: Any) -> str:
    with transaction(service.sessions) as session:
        snapshot = snapshots.take_snapshot(session, reference=NAME)
        problem = PlanningProblem(snapshot, small_architecture(), small_workload())
        plan_id = plans.create_plan(session, problem=problem, options=SearchOptions())
        assert solves.finish(session, plan_id=plan_id, status=status, result=result)
        return plan_id


def _run(browser: TestClient, plan_id: str, **fields: Any) -> Any:
    sent = {"cluster": NAME, "name": "pretrain", "how": "approved"}
    return browser.post(f"/plans/{plan_id}/run", data=recovery_form.filled(recovery_form.TRAINING) | sent | fields)


def _job(service: Service, name: str = "pretrain") -> JobRecord:
    with service.read_sessions() as session:
        return running_jobs.get_job(session, reference=NAME, job=name)


def _held(service: Service) -> int:
    with service.read_sessions() as session:
        return len(occupancy.list_held(session, reference=NAME))


def test_a_finished_plan_becomes_a_job(pages: Site, plan_id: str) -> None:
    """The plan's page leads to a form with sensible values; the job holds the plan's GPUs."""
    service, browser = pages
    assert f'href="/plans/{plan_id}/run"' in browser.get(f"/plans/{plan_id}").text
    form = browser.get(f"/plans/{plan_id}/run").text
    assert chosen(form, "cluster") == NAME
    assert box(form, "weight") == "1"
    assert box(form, "name") == "tiny-4"
    assert where(_run(browser, plan_id, weight="2.5")) == f"/clusters/{NAME}/jobs/pretrain"
    job = _job(service)
    assert (job.weight, job.standing, job.gpus_held) == (2.5, JobStanding.IDLE, 8)


@pytest.mark.parametrize(
    ("how", "standing", "held"),
    [("proposed", JobStanding.IDLE, 0), ("approved", JobStanding.IDLE, 8), ("applied", JobStanding.RUNNING, 8)],
)
def test_a_plan_goes_as_far_as_was_said(
    pages: Site, plan_id: str, how: str, standing: JobStanding, held: int
) -> None:
    """Only written down, its GPUs held, or running already."""
    service, browser = pages
    where(_run(browser, plan_id, how=how))
    assert (_job(service).standing, _held(service)) == (standing, held)


def test_a_plan_is_compared_with_what_runs(pages: Site, plan_id: str) -> None:
    """Its page leads to the jobs that run its model by another plan, and the comparison says which that is."""
    service, browser = pages
    other = _planned(service, PlanStatus.SUCCEEDED, jsonable(small_plan()))
    where(_run(browser, other, how="applied"))
    running = _job(service).plan
    assert running is not None
    address = f"/plans/compare?plan={plan_id}&amp;running={running.id}"
    assert f'<a href="{address}">pretrain</a>' in browser.get(f"/plans/{plan_id}/compare").text
    assert "what runs" not in browser.get(f"/plans/{other}/compare").text, "it is itself"
    page = browser.get(address.replace("&amp;", "&"))
    assert page.status_code == 200
    words = told(page.text)
    assert "What runs: tiny-4, tp2 pp2 dp2 on 8 GPUs" in words
    assert "what runs, beside the plan" in words
    assert "Its step takes as long as the plan's." in words
    assert browser.get(f"/plans/compare?plan={plan_id}&running=none").status_code == 404


def test_a_form_with_mistakes_comes_back_whole(pages: Site, plan_id: str) -> None:
    """Every problem at its field, everything typed still there, nothing stored."""
    service, browser = pages
    answer = _run(
        browser,
        plan_id,
        name="a/b",
        weight="heavy",
        restart_low_s="500",
        least_gpus="1.5",
        may=["may_move"],
        how="applied",
    )
    assert answer.status_code == 422
    page = answer.text
    for name, typed in (("name", "a/b"), ("weight", "heavy"), ("least_gpus", "1.5"), ("restart_low_s", "500")):
        assert box(page, name) == typed
    for name in ("name", "weight", "least_gpus"):
        assert f'href="#{name}"' in page
        assert f'id="{name}-wrong-1"' in page
    assert ticked(page, "may") == ["may_move"]
    assert chosen(page, "how") == "applied"
    assert '<details class="options" open>' in page
    with service.read_sessions() as session:
        assert running_jobs.list_jobs(session, reference=NAME, limit=9).items == ()


def test_a_range_that_is_upside_down_is_told_where_it_is(pages: Site, plan_id: str) -> None:
    """The policy refuses it as a whole, the page at the field."""
    answer = _run(pages[1], plan_id, restart_low_s="500")
    assert 'id="restart_high_s-wrong-1"' in answer.text


def test_gpus_that_another_job_holds_are_not_given_again(pages: Site, plan_id: str) -> None:
    """409 with the form as it was; the second job is not there at all."""
    service, browser = pages
    where(_run(browser, plan_id))
    answer = _run(browser, plan_id, name="second", weight="3")
    assert answer.status_code == 409
    assert "8 GPUs are held by other jobs" in answer.text
    assert box(answer.text, "weight") == "3"
    with service.read_sessions() as session:
        assert [job.name for job in running_jobs.list_jobs(session, reference=NAME, limit=9).items] == ["pretrain"]


def test_a_plan_for_a_job_that_is_there_is_its_next_one(pages: Site, plan_id: str) -> None:
    """The name decides; weight and policy of the job stay."""
    service, browser = pages
    where(_run(browser, plan_id, weight="2", how="applied"))
    where(_run(browser, plan_id, weight="9", how="proposed"))
    assert _job(service).weight == 2
    with service.read_sessions() as session:
        found = running_plans.list_running_plans(session, reference=NAME, job="pretrain", limit=9).items
    assert [plan.status for plan in found] == [RunningPlanStatus.PROPOSED, RunningPlanStatus.APPLIED]


def test_a_plan_that_fits_nothing_cannot_be_run(pages: Site) -> None:
    """There is nothing to run, and the page says so instead of breaking."""
    plan_id = _planned(pages[0], PlanStatus.INFEASIBLE, jsonable(small_no_plan()))
    assert "Run this plan" not in pages[1].get(f"/plans/{plan_id}").text
    assert pages[1].get(f"/plans/{plan_id}/run").status_code == 409


def test_steps_are_taken_on_the_page_of_the_job(pages: Site, plan_id: str) -> None:
    """Proposed, approved, running, ended: each page offers what comes next and nothing else."""
    service, browser = pages
    address = where(_run(browser, plan_id, how="proposed"))
    with service.read_sessions() as session:
        running = running_plans.list_running_plans(session, reference=NAME, job="pretrain", limit=1).items[0].id
    for offered, step, held in (
        (["approve", "cancel"], "approve", 8),
        (["apply", "cancel"], "apply", 8),
        (["cancel"], "cancel", 0),
    ):
        assert buttons(browser.get(address).text)[: len(offered)] == offered
        assert where(browser.post(address, data={"do": step, "plan": running})) == address
        assert _held(service) == held
    page = browser.get(address).text
    assert buttons(page) == ["change", "forget"]
    assert "It has no plan." in page


def test_a_step_that_comes_too_late_is_refused(pages: Site, plan_id: str) -> None:
    """409 with the page as it is now."""
    service, browser = pages
    address = where(_run(browser, plan_id, how="proposed"))
    with service.read_sessions() as session:
        running = running_plans.list_running_plans(session, reference=NAME, job="pretrain", limit=1).items[0].id
    browser.post(address, data={"do": "cancel", "plan": running})
    answer = browser.post(address, data={"do": "approve", "plan": running})
    assert answer.status_code == 409
    assert "is cancelled" in told(answer.text)


def test_weight_and_policy_are_changed_and_a_job_is_forgotten(pages: Site, plan_id: str) -> None:
    """Settings that the form lacks stay; forgetting frees the GPUs."""
    service, browser = pages
    address = where(_run(browser, plan_id))
    with transaction(service.sessions) as session:
        policy = RecoveryPolicy(steps_since_checkpoint=7)
        running_jobs.change_job(session, reference=NAME, job="pretrain", recovery=policy)
    values = recovery_form.filled(
        recovery_form.TRAINING, weight=0.5, policy=RecoveryPolicy(may_move=True, move_price_s=3)
    )
    where(browser.post(address, data=values | {"do": "change"}))
    job = _job(service)
    assert job.weight == 0.5
    assert job.recovery == RecoveryPolicy(steps_since_checkpoint=7, may_move=True, move_price_s=3)
    wrong = browser.post(address, data=values | {"do": "change", "most_gpus": "many"})
    assert wrong.status_code == 422
    assert box(wrong.text, "most_gpus") == "many"
    running = job.plan
    assert running is None
    with service.read_sessions() as session:
        approved = running_plans.list_running_plans(session, reference=NAME, job="pretrain", limit=1).items[0].id
    assert browser.post(address, data={"do": "forget"}).status_code == 409
    browser.post(address, data={"do": "cancel", "plan": approved})
    assert where(browser.post(address, data={"do": "forget"})) == f"/clusters/{NAME}"
    assert _held(service) == 0


def test_pages_of_other_sites_change_nothing(pages: Site, plan_id: str) -> None:
    """Every form of these pages."""
    service, browser = pages
    browser.headers.update(FOREIGN)
    assert browser.post(f"/plans/{plan_id}/run", data={}).status_code == 403
    assert browser.post(f"/clusters/{NAME}/jobs/pretrain", data={"do": "forget"}).status_code == 403
    assert _held(service) == 0


def test_the_page_of_a_cluster_says_who_holds_which_gpus(pages: Site) -> None:
    """In words for whoever sees no colours: each node with its job, free ones, and all in a sentence."""
    service, browser = pages
    with transaction(service.sessions) as session:
        add_cluster(session)
        add_job(session, "<b>bold", "n0", "n1")
    page = browser.get(f"/clusters/{CLUSTER}").text
    words = told(page)
    assert "1 job holds 8 of 32 GPUs." in words
    assert "n1 <b>bold" in words
    assert "n2 free" in words
    assert "leaf-1" in words
    assert "<b>bold" not in page
    assert page.count('class="hue-0"') == 8


policies = st.builds(
    RecoveryPolicy,
    checkpoint_interval_steps=st.integers(1, 10**6),
    steps_since_checkpoint=st.none() | st.integers(0, 10**6),
    storage_bytes_per_s=st.integers(1, 10**6).map(lambda mbytes: mbytes * 1e6),
    optimizer_instances=st.integers(1, 64),
    memory_checkpoint=st.booleans(),
    restart_low_s=st.integers(0, 100).map(float),
    restart_high_s=st.integers(100, 10**4).map(float),
    may_reroute=st.booleans(),
    may_change_batch=st.booleans(),
    may_reshape=st.booleans(),
    may_move=st.booleans(),
    move_price_s=st.integers(0, 10**4).map(lambda tenths: tenths / 10),
    least_gpus=st.integers(1, 8),
    most_gpus=st.none() | st.integers(8, 10**4),
)


@given(policies, st.integers(1, 10**6).map(lambda hundredths: hundredths / 100))
def test_a_form_that_nobody_touched_changes_nothing(policy: RecoveryPolicy, weight: float) -> None:
    """The form shows what was stored."""
    values = recovery_form.filled(recovery_form.TRAINING, name="j", weight=weight, policy=policy)
    data = FormData(
        [(name, text) for name, text in values.items() if name != "may"] + [("may", box) for box in values["may"]]
    )
    found: list[FormProblem] = []
    form = recovery_form.TRAINING
    read = recovery_form.worth_of(form, sent_words(data, recovery_form.filled(form)), found, policy)
    assert found == []
    assert read.weight == weight
    assert read.recovery is not None
    assert read.recovery.storage_bytes_per_s == pytest.approx(policy.storage_bytes_per_s, rel=1e-11)
    assert replace(read.recovery, storage_bytes_per_s=policy.storage_bytes_per_s) == policy
