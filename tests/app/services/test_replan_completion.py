"""A decision carried out job by job: each job stays as it was completed, whatever becomes of the others."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.db.status import JobStanding, ReplanStatus, ReplanStep, RunningPlanStatus
from app.db.webhook_tables import WebhookDeliveryRow
from app.services.decisions import replan_completion, replan_solves, replans
from app.services.decisions.replan_steps import NOBODY, Actor
from app.services.errors import NotFound, WrongStatus
from app.services.running import occupancy, running_jobs, running_plans
from app.services.running.running_jobs import JobRecord
from app.services.webhooks import webhooks
from cluster_models.jobs.recovery import RecoveryAction
from tests.app.running_rows import (
    CLUSTER,
    START,
    add_cluster,
    add_job,
    as_described,
    decided,
    nodes_held,
    occupied,
    plan_on,
    report,
    solved,
    told,
)

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
DOE = Actor("j.doe")


def _approved(session: Session) -> tuple[str, JobRecord, JobRecord]:
    """``a`` and ``b`` lost n0 and n2: they are to take the spares n6 and n7."""
    add_cluster(session)
    a, b = add_job(session, "a", "n0", "n1"), add_job(session, "b", "n2", "n3")
    occupancy.replace_spares(session, reference=CLUSTER, nodes=["n6", "n7"])
    replan_id = report(session, told("n0"), told("n2")).replan_id
    assert replan_id is not None
    swap = RecoveryAction.SWAP
    solved(session, replan_id, decided({a: (swap, plan_on("n6", "n1")), b: (swap, plan_on("n7", "n3"))}))
    replans.approve_replan(session, replan_id=replan_id, actor=DOE)
    return replan_id, a, b


def _standing(session: Session, job: str) -> JobStanding:
    return running_jobs.get_job(session, reference=CLUSTER, job=job).standing


def test_one_job_is_completed_and_the_last_ends_the_replan(sessions: SessionFactory) -> None:
    """Each may be said twice; the GPUs that the first left are free before the second is done."""
    with transaction(sessions) as session:
        replan_id, a, b = _approved(session)
        assert replans.get_replan(session, replan_id=replan_id).remaining == ("a", "b")
        for _ in range(2):
            replan = replans.complete_job(session, replan_id=replan_id, job="a", actor=DOE)
            assert (replan.status, replan.remaining) == (ReplanStatus.APPLYING, ("b",))
        held = {(node, job, claimed) for node, _gpu, job, claimed, _leaving in occupied(session)}
        assert {each for each in held if each[1] == a.id} == {("n6", a.id, False), ("n1", a.id, False)}
        job = running_jobs.get_job(session, reference=CLUSTER, job="a")
        assert job.plan is not None
        assert job.plan.replan_id == replan_id
        with pytest.raises(NotFound):
            replans.complete_job(session, replan_id=replan_id, job="nobody")
        ended = replans.complete_job(session, replan_id=replan_id, job=b.id)
        assert (ended.status, ended.remaining) == (ReplanStatus.APPLIED, ())
        assert nodes_held(session, b) == {"n7", "n3"}
        steps = [(each.step, each.job, each.actor.name) for each in ended.steps]
        done = ReplanStep.JOB_COMPLETED
        assert steps[:3] == [
            (ReplanStep.APPROVED, None, "j.doe"),
            (ReplanStep.STARTED, None, "j.doe"),
            (done, "a", "j.doe"),
        ]
        assert steps[3:] == [(done, "b", ""), (ReplanStep.APPLIED, None, "")]


def test_a_plan_that_a_replan_decided_is_applied_like_any_other(sessions: SessionFactory) -> None:
    """Saying that the job runs by its plan completes the job in the replan."""
    with transaction(sessions) as session:
        replan_id, _a, _b = _approved(session)
        plan = running_plans.list_running_plans(session, reference=CLUSTER, job="a", limit=1).items[0]
        for _ in range(2):
            applied = replan_completion.apply_running_plan(session, running_plan_id=plan.id, actor=NOBODY)
            assert applied.status is RunningPlanStatus.APPLIED
        assert replans.get_replan(session, replan_id=replan_id).remaining == ("b",)


@pytest.mark.parametrize("ending", [replans.cancel_replan, replans.fail_replan], ids=["cancelled", "failed"])
def test_what_was_completed_is_not_given_back(sessions: SessionFactory, ending: Callable[..., object]) -> None:
    """Called off half done: the started job keeps what it runs on, the other what it had."""
    with transaction(sessions) as session:
        replan_id, a, b = _approved(session)
        replans.complete_job(session, replan_id=replan_id, job="a")
        ending(session, replan_id=replan_id, problem="n7 did not come up.")
        assert (nodes_held(session, a), nodes_held(session, b)) == ({"n6", "n1"}, {"n2", "n3"})
        assert {node for node, *_ in occupied(session)} == {"n1", "n2", "n3", "n6"}


def test_a_later_failure_finds_a_started_job_as_it_runs_now(sessions: SessionFactory) -> None:
    """The spare of ``b`` dies after ``a`` was started: the next decision starts from the new plan of ``a``."""
    with transaction(sessions) as session:
        replan_id, a, b = _approved(session)
        replans.complete_job(session, replan_id=replan_id, job="a")
        later = report(session, told("n7", at_s=300), at_s=300).replan_id
        assert later not in (None, replan_id)
        assert later is not None
        request = replan_solves.begin_attempt(session, replan_id=later, now=START.replace(minute=30))
        assert request is not None
        hosts = {job.name: job.plan.placement.hosts for job in request.to_problem().jobs}
        assert hosts == {"a": ("n6", "n1"), "b": ("n2", "n3")}
        assert nodes_held(session, a) == {"n6", "n1"}
        assert running_plans.list_running_plans(session, reference=CLUSTER, job="b", limit=9).items[0].status is (
            RunningPlanStatus.CANCELLED
        )
        assert nodes_held(session, b) == {"n7", "n3"}, "held until the later decision says where it goes"


def test_an_overtaken_replan_says_how_to_complete_what_was_started(sessions: SessionFactory) -> None:
    """All at once it cannot be carried out any more; the refusal names the replan that decides now."""
    with transaction(sessions) as session:
        replan_id, _a, _b = _approved(session)
        later = report(session, told("n7", at_s=300), at_s=300).replan_id
        with pytest.raises(WrongStatus, match=f"{later} overtook it; complete one by one the jobs"):
            replans.finish_applied(session, replan_id=replan_id)


def test_a_job_started_before_anybody_knew_is_taken_in(sessions: SessionFactory) -> None:
    """A spare dies, then the word comes that ``a`` was started by the decision that this overtook."""
    with transaction(sessions) as session:
        replan_id, a, _b = _approved(session)
        later = report(session, told("n7", at_s=300), at_s=300).replan_id
        assert later is not None
        replans.complete_job(session, replan_id=replan_id, job="a")
        assert nodes_held(session, a) == {"n6", "n1"}
        request = replan_solves.begin_attempt(session, replan_id=later, now=START.replace(minute=30))
        assert request is not None
        hosts = {job.name: job.plan.placement.hosts for job in request.to_problem().jobs}
        assert hosts["a"] == ("n6", "n1")


@on_sqlite
def test_what_was_being_solved_is_decided_anew_when_a_job_was_started_meanwhile(sessions: SessionFactory) -> None:
    """The question was frozen without it; once another answer is approved, the old one counts no more."""
    with transaction(sessions) as session:
        replan_id, a, b = _approved(session)
        later = report(session, told("n7", at_s=300), at_s=300).replan_id
        assert later is not None
        assert replan_solves.begin_attempt(session, replan_id=later, now=START.replace(minute=30)) is not None
        replans.complete_job(session, replan_id=replan_id, job="a")
        newest = replans.open_replan_of(session, reference=CLUSTER)
        assert newest is not None
        assert newest.id not in (replan_id, later)
        assert newest.reason == "a was started as decided before."
        answer = decided({b: (RecoveryAction.WAIT, None)}, untouched=[a])
        solved(session, newest.id, answer, at_s=10**9)
        replans.approve_replan(session, replan_id=newest.id)
        with pytest.raises(WrongStatus, match="decides about its jobs"):
            replans.complete_job(session, replan_id=replan_id, job="b")


@pytest.mark.parametrize("is_called_off", [False, True])
def test_a_job_whose_gpus_were_taken_is_paused_until_completed(
    sessions: SessionFactory, is_called_off: bool
) -> None:
    """``a`` runs on a node of ``b``, so ``b`` runs no more, and calling the replan off does not bring it back."""
    with transaction(sessions) as session:
        add_cluster(session)
        a, b = add_job(session, "a", "n0", "n1"), add_job(session, "b", "n2", "n3")
        occupancy.replace_spares(session, reference=CLUSTER, nodes=["n6"])
        replan_id = report(session, told("n0")).replan_id
        assert replan_id is not None
        swap = RecoveryAction.SWAP
        solved(session, replan_id, decided({a: (swap, plan_on("n2", "n1")), b: (swap, plan_on("n6", "n3"))}))
        replans.approve_replan(session, replan_id=replan_id)
        replans.complete_job(session, replan_id=replan_id, job="a")
        assert _standing(session, "b") is JobStanding.PAUSED
        if is_called_off:
            replans.cancel_replan(session, replan_id=replan_id)
        else:
            replans.complete_job(session, replan_id=replan_id, job="b")
        assert nodes_held(session, a) == {"n2", "n1"}
        assert nodes_held(session, b) == (set() if is_called_off else {"n6", "n3"})
        assert _standing(session, "b") is (JobStanding.PAUSED if is_called_off else JobStanding.RUNNING)


@on_sqlite
def test_every_change_is_announced_with_who_made_it(sessions: SessionFactory) -> None:
    """Approved, started, each job, applied; and superseded with the id of the later one."""
    with transaction(sessions) as session:
        webhooks.create_endpoint(session, url="https://a.example/all")
        replan_id, _a, _b = _approved(session)
        replans.complete_job(session, replan_id=replan_id, job="a", actor=DOE)
        later = report(session, told("n7", at_s=300), at_s=300).replan_id
        query = select(WebhookDeliveryRow.payload).order_by(WebhookDeliveryRow.created_at)
        sent = [json.loads(body) for body in session.scalars(query)]
        assert [body["type"] for body in sent] == [
            f"replan.{step}" for step in ("proposed", "approved", "started", "job_completed", "superseded")
        ]
        for body in sent:
            as_described(body)
        by_type = {body["type"].partition(".")[2]: body["data"] for body in sent}
        assert (by_type["approved"]["actor"], by_type["approved"]["status"]) == ("j.doe", "approved")
        assert by_type["job_completed"]["job"] == "a"
        assert (by_type["superseded"]["superseded_by"], by_type["superseded"]["actor"]) == (later, "meshwright")
