"""A replan from its answers to the end: approved, carried out, failed, called off; GPUs follow."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from sqlalchemy import select

from app.db.engine import SessionFactory, transaction
from app.db.status import JobStanding, ReplanStatus, RunningPlanStatus
from app.db.webhook_tables import WebhookDeliveryRow
from app.serialization import jsonable
from app.services.decisions import (
    preparations,
    replan_problems,
    replan_settings,
    replan_solves,
    replan_views,
    replans,
    reports,
    safe_answers,
    timed_replans,
)
from app.services.decisions.replan_settings import ReplanSettings
from app.services.decisions.replans import Answer
from app.services.decisions.safe_answers import answer_safely
from app.services.errors import GpusTaken, NotFound, WrongStatus
from app.services.health import health_events
from app.services.running import occupancy, running_jobs, running_plans
from app.services.running.running_plans import PlanSource
from app.services.webhooks import webhooks
from app.services.webhooks.webhooks import EventType
from cluster_models.health.events import HealthState
from cluster_models.jobs.recovery import RecoveryAction
from tests.app.running_rows import (
    CLUSTER,
    START,
    add_job,
    as_described,
    decided,
    failed_job,
    nodes_held,
    occupied,
    plan_on,
    report,
    solved,
    swapped_job,
    told,
)
from tests.plans import GLOBAL_BATCH

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
SOLVED = START + timedelta(seconds=61)


def test_an_approved_answer_holds_its_gpus_and_an_applied_one_frees_the_rest(sessions: SessionFactory) -> None:
    """Each step may be repeated; the failed node serves as a spare once it is well again."""
    with transaction(sessions) as session:
        replan_id, a, _b = swapped_job(session)
        replan = replans.get_replan(session, replan_id=replan_id)
        assert (replan.status, replan.has_decision) == (ReplanStatus.PROPOSED, True)
        assert replan.summary is not None
        assert [(job.job, job.action) for job in replan.summary.jobs] == [("a", RecoveryAction.SWAP)]
        before = occupied(session)
        for _ in range(2):
            assert replans.approve_replan(session, replan_id=replan_id).status is ReplanStatus.APPROVED
            assert nodes_held(session, a) == {"n7", "n1"}
            assert {gpu[0] for gpu in occupied(session)} == {gpu[0] for gpu in before} | {"n7"}
        for _ in range(2):
            assert replans.begin_applying(session, replan_id=replan_id).status is ReplanStatus.APPLYING
        for _ in range(2):
            assert replans.finish_applied(session, replan_id=replan_id).status is ReplanStatus.APPLIED
        assert {gpu[0] for gpu in occupied(session)} == {"n1", "n2", "n3", "n7"}
        assert not any(claimed or leaving for *_, claimed, leaving in occupied(session))
        job = running_jobs.get_job(session, reference=CLUSTER, job="a")
        assert job.plan is not None
        assert job.plan.replan_id == replan_id
        spares = occupancy.list_spares(session, reference=CLUSTER)
        assert [(spare.node, spare.free) for spare in spares] == [("n0", False), ("n7", False)]
        with pytest.raises(WrongStatus):
            replans.cancel_replan(session, replan_id=replan_id)


@pytest.mark.parametrize("ending", [replans.cancel_replan, replans.fail_replan], ids=["cancelled", "failed"])
def test_what_was_claimed_is_given_back(sessions: SessionFactory, ending: object) -> None:
    """Called off or failed after approval: every GPU is whose it was, and the plans it made are called off."""
    with transaction(sessions) as session:
        replan_id, a, _b = failed_job(session)
        before = occupied(session)
        solved(session, replan_id, decided({a: (RecoveryAction.SWAP, plan_on("n7", "n1"))}))
        replans.approve_replan(session, replan_id=replan_id)
        for _ in range(2):
            ended = ending(session, replan_id=replan_id, problem="It broke.")  # type: ignore[operator]
        assert ended.error is not None
        assert ended.error.problem == "It broke."
        assert occupied(session) == before
        plans = running_plans.list_running_plans(session, reference=CLUSTER, job="a", limit=9).items
        assert [plan.status for plan in plans] == [RunningPlanStatus.CANCELLED, RunningPlanStatus.APPLIED]


def test_gpus_of_one_job_may_go_to_another(sessions: SessionFactory) -> None:
    """The light job is paused for the heavy one: its GPUs change hands, and come back if that is called off."""
    with transaction(sessions) as session:
        replan_id, a, b = failed_job(session)
        before = occupied(session)
        answer = decided({a: (RecoveryAction.SWAP, plan_on("n2", "n1")), b: (RecoveryAction.PAUSE, None)})
        solved(session, replan_id, answer)
        replans.approve_replan(session, replan_id=replan_id)
        assert (nodes_held(session, a), nodes_held(session, b)) == ({"n2", "n1"}, set())
        replans.cancel_replan(session, replan_id=replan_id)
        assert occupied(session) == before
        again = reports.request_replan(session, reference=CLUSTER, now=START)
        solved(session, again, answer)
        replans.approve_replan(session, replan_id=again)
        replans.finish_applied(session, replan_id=again)
        jobs = {job.name: job for job in running_jobs.list_jobs(session, reference=CLUSTER, limit=9).items}
        assert (jobs["a"].standing, jobs["b"].standing) == (JobStanding.RUNNING, JobStanding.PAUSED)
        assert (jobs["b"].plan, jobs["b"].gpus_held) == (None, 0)
        assert {gpu[0] for gpu in occupied(session)} == {"n1", "n2"}
        report(session, told("n0", HealthState.RECOVERED, at_s=3600), at_s=3600)
        (woken,) = timed_replans.wake_waiting(session, now=START + timedelta(seconds=4300))
        request = replan_solves.begin_attempt(session, replan_id=woken, now=START + timedelta(seconds=4300))
        assert request is not None
        paused = {job.name: job for job in request.to_problem().jobs}["b"]
        assert (paused.is_paused, paused.wanted_gpus, paused.wanted_batch) == (True, 8, GLOBAL_BATCH)
        assert request.spares == ["n0", "n3", "n7"]
        started = decided({b: (RecoveryAction.RESTART_IN_PLACE, plan_on("n0", "n3"))}, untouched=[a])
        assert replan_solves.finish(session, replan_id=woken, decision=jsonable(started))
        replans.approve_replan(session, replan_id=woken)
        replans.finish_applied(session, replan_id=woken)
        assert nodes_held(session, b) == {"n0", "n3"}
        assert running_jobs.get_job(session, reference=CLUSTER, job="b").standing is JobStanding.RUNNING


@on_sqlite
def test_a_job_that_waits_keeps_the_lost_gpus_and_is_woken_once(sessions: SessionFactory) -> None:
    """When the node has been well for long enough a replan is opened; called off, it is not opened again."""
    with transaction(sessions) as session:
        replan_id, a, b = failed_job(session)
        solved(session, replan_id, decided({a: (RecoveryAction.WAIT, None)}, untouched=[b]))
        replans.approve_replan(session, replan_id=replan_id)
        replans.finish_applied(session, replan_id=replan_id)
        assert nodes_held(session, a) == {"n0", "n1"}
        assert running_jobs.get_job(session, reference=CLUSTER, job="a").standing is JobStanding.WAITING
        assert timed_replans.wake_waiting(session, now=START + timedelta(days=1)) == []
        report(session, told("n0", HealthState.RECOVERED, at_s=3600), at_s=3600)
        assert timed_replans.wake_waiting(session, now=START + timedelta(seconds=3700)) == []
        quiet = START + timedelta(seconds=4300)
        (woken,) = timed_replans.wake_waiting(session, now=quiet)
        assert replan_solves.due(session, now=quiet) == [woken]
        replans.cancel_replan(session, replan_id=woken)
        assert timed_replans.wake_waiting(session, now=quiet + timedelta(seconds=60)) == []
        again = reports.request_replan(session, reference=CLUSTER, now=quiet)
        solved(session, again, decided({}, untouched=[a, b]), at_s=4400)
        replans.approve_replan(session, replan_id=again)
        replans.finish_applied(session, replan_id=again)
        assert running_jobs.get_job(session, reference=CLUSTER, job="a").standing is JobStanding.RUNNING


def test_an_answer_that_meets_other_jobs_is_refused(sessions: SessionFactory) -> None:
    """A job took the spare, or the job itself changed, after the question was frozen."""
    with transaction(sessions) as session:
        replan_id, _a, _b = swapped_job(session)
        add_job(session, "c", "n7", "n6")
        with pytest.raises(GpusTaken, match="n7:0"):
            replans.approve_replan(session, replan_id=replan_id)
        session.rollback()
    with transaction(sessions) as session:
        replan_id, _a, _b = swapped_job(session)
        moved = PlanSource(plan=plan_on("n4", "n5"))
        proposed = running_plans.propose_plan(session, reference=CLUSTER, job="a", source=moved)
        running_plans.approve_plan(session, running_plan_id=proposed.id)
        with pytest.raises(GpusTaken, match="approved waits"):
            replans.approve_replan(session, replan_id=replan_id)
        running_plans.apply_plan(session, running_plan_id=proposed.id)
        with pytest.raises(WrongStatus, match="a changed since"):
            replans.approve_replan(session, replan_id=replan_id)


@on_sqlite
@pytest.mark.parametrize("is_free", [True, False])
def test_answers_may_approve_themselves(sessions: SessionFactory, is_free: bool) -> None:
    """Where the settings say so; where GPUs are taken meanwhile the answer stays a proposal."""
    with transaction(sessions) as session:
        replan_id, a, b = failed_job(session)
        settings = ReplanSettings(auto_approve=True)
        replan_settings.replace_settings(session, reference=CLUSTER, settings=settings)
        if not is_free:
            add_job(session, "c", "n7", "n6")
        solved(session, replan_id, decided({a: (RecoveryAction.SWAP, plan_on("n7", "n1"))}, untouched=[b]))
        expected = ReplanStatus.APPROVED if is_free else ReplanStatus.PROPOSED
        assert replans.get_replan(session, replan_id=replan_id).status is expected
        assert nodes_held(session, a) == ({"n7", "n1"} if is_free else {"n0", "n1"})


def test_the_safe_answer_is_there_at_once_and_can_be_approved(sessions: SessionFactory) -> None:
    """The real one: worked out outside the transaction of the report, before the window ends."""
    with transaction(sessions) as session:
        replan_id, a, _b = failed_job(session)
        with pytest.raises(WrongStatus, match="wait"):
            replans.approve_replan(session, replan_id=replan_id, answer=Answer.SAFE)
    assert answer_safely(sessions, replan_id=replan_id, now=START)
    assert answer_safely(sessions, replan_id=replan_id, now=START)
    with transaction(sessions) as session:
        replan = replans.get_replan(session, replan_id=replan_id)
        assert (replan.status, replan.has_safe_answer) == (ReplanStatus.COLLECTING, True)
        assert replan.summary is not None
        assert replan.summary.fallback
        shown = replan_views.view_answer(session, replan_id=replan_id, answer=Answer.SAFE)
        assert shown is not None
        assert [made.action for made in shown.decision.jobs] == [RecoveryAction.SWAP]
        with pytest.raises(WrongStatus):
            replans.approve_replan(session, replan_id=replan_id)
        approved = replans.approve_replan(session, replan_id=replan_id, answer=Answer.SAFE)
        assert (approved.status, approved.chosen) == (ReplanStatus.APPROVED, Answer.SAFE)
        assert nodes_held(session, a) == {"n7", "n1"}
        assert not replan_solves.save_progress(session, replan_id=replan_id, progress=None)


@on_sqlite
def test_a_solver_without_an_answer_leaves_the_safe_one(sessions: SessionFactory) -> None:
    """With a safe answer that is proposed; without, the replan failed and says why."""
    error = {"problem": "It crashed.", "remedy": ""}
    with transaction(sessions) as session:
        replan_id, _a, _b = failed_job(session)
    answer_safely(sessions, replan_id=replan_id, now=START)
    with transaction(sessions) as session:
        replan_solves.begin_attempt(session, replan_id=replan_id, now=SOLVED)
        assert replan_solves.finish_without(session, replan_id=replan_id, error=error)
        replan = replans.get_replan(session, replan_id=replan_id)
        assert (replan.status, replan.has_decision) == (ReplanStatus.PROPOSED, False)
        assert replan.error is not None
        assert replans.approve_replan(session, replan_id=replan_id).status is ReplanStatus.APPROVED
        replans.cancel_replan(session, replan_id=replan_id)
        other = reports.request_replan(session, reference=CLUSTER, now=START)
        replan_solves.begin_attempt(session, replan_id=other, now=SOLVED)
        replan_solves.finish_without(session, replan_id=other, error=error)
        assert replans.get_replan(session, replan_id=other).status is ReplanStatus.FAILED


@on_sqlite
def test_a_replan_with_unsolvable_workers_is_given_up(sessions: SessionFactory) -> None:
    """After a few workers lost under it."""
    with transaction(sessions) as session:
        replan_id, _a, _b = failed_job(session)
        replan_solves.begin_attempt(session, replan_id=replan_id, now=SOLVED)
        verdicts = [replan_solves.count_rescue(session, replan_id=replan_id) for _ in range(4)]
        assert verdicts == [True, True, True, False]
        assert replans.get_replan(session, replan_id=replan_id).status is ReplanStatus.FAILED


@on_sqlite
def test_a_second_attempt_solves_what_the_first_froze(sessions: SessionFactory) -> None:
    """After a crash the same question is asked again, whatever was reported of other parts meanwhile."""
    with transaction(sessions) as session:
        replan_id, _a, _b = failed_job(session)
        first = replan_solves.begin_attempt(session, replan_id=replan_id, now=SOLVED)
        report(session, told("n4", at_s=70), at_s=70)
        second = replan_solves.begin_attempt(session, replan_id=replan_id, now=SOLVED)
        assert first == second
        assert replans.get_replan(session, replan_id=replan_id).attempts == 2


@on_sqlite
def test_repeat_offenders_are_advised_against_and_serve_as_no_spare(sessions: SessionFactory) -> None:
    """Whatever the solver knew of, the advice comes from the whole history."""
    with transaction(sessions) as session:
        replan_id, a, _b = failed_job(session)
        for number in range(3):
            at_s = -86_400.0 * (number + 1)
            report(session, told("n7", at_s=at_s), told("n7", HealthState.RECOVERED, at_s=at_s + 60), at_s=1)
        request = replan_solves.begin_attempt(session, replan_id=replan_id, now=SOLVED)
        assert request is not None
        assert request.spares == []
        answer = decided({a: (RecoveryAction.WAIT, None)})
        assert replan_solves.finish(session, replan_id=replan_id, decision=jsonable(answer))
        replan = replans.get_replan(session, replan_id=replan_id)
        assert replan.summary is not None
        now = START + timedelta(seconds=61)
        assert {each.node for each in health_events.quarantine_now(session, reference=CLUSTER, now=now)} == {"n7"}


@on_sqlite
def test_everybody_who_wants_to_is_told(sessions: SessionFactory) -> None:
    """One message for each step and endpoint, in the transaction of the step; the body is whole JSON."""
    with transaction(sessions) as session:
        webhooks.create_endpoint(session, url="https://a.example/all")
        webhooks.create_endpoint(session, url="https://a.example/some", event_types=[EventType.APPLIED])
        replan_id, a, _b = failed_job(session)
        report(session, told("what-is-this", known=False))
    answer_safely(sessions, replan_id=replan_id, now=START)
    with transaction(sessions) as session:
        solved(session, replan_id, decided({a: (RecoveryAction.SWAP, plan_on("n7", "n1"))}))
        replans.approve_replan(session, replan_id=replan_id)
        replans.finish_applied(session, replan_id=replan_id)
        query = select(WebhookDeliveryRow.event_type, WebhookDeliveryRow.payload)
        sent = [(kind, json.loads(body)) for kind, body in session.execute(query)]
        steps = ("applied", "applied", "approved", "proposed", "safe_answer")
        assert sorted(kind for kind, _ in sent) == ["event.unknown_name", *(f"replan.{each}" for each in steps)]
        by_kind = dict(sent)
        assert all(body["type"] == kind for kind, body in sent)
        for _, body in sent:
            as_described(body)
        assert by_kind["event.unknown_name"]["data"]["names"][0]["name"] == "what-is-this"
        assert by_kind["replan.proposed"]["data"]["jobs"][0]["action"] == "swap"
        assert by_kind["replan.proposed"]["data"]["address"] == f"/api/v1/replans/{replan_id}"


@on_sqlite
def test_lists_show_newest_first_in_pages(sessions: SessionFactory) -> None:
    """By cluster and status; an unknown id is not found."""
    with transaction(sessions) as session:
        first, _a, _b = failed_job(session)
        replans.cancel_replan(session, replan_id=first)
        second = reports.request_replan(session, reference=CLUSTER)
        page = replans.list_replans(session, reference=CLUSTER, limit=1)
        rest = replans.list_replans(session, reference=CLUSTER, limit=1, cursor=page.next_cursor)
        assert [each.id for each in page.items + rest.items] == [second, first]
        listed = replans.list_replans(session, limit=9, status=ReplanStatus.CANCELLED)
        assert [each.id for each in listed.items] == [first]
        with pytest.raises(NotFound):
            replans.get_replan(session, replan_id="nothing")


@on_sqlite
def test_running_plans_are_prepared_once_until_something_changes(sessions: SessionFactory) -> None:
    """The id of the job that prepares follows from the plans; other spares make another."""
    with transaction(sessions) as session:
        _replan, a, b = failed_job(session)
        (first,) = preparations.wanted(session).values()
        assert list(preparations.wanted(session).values()) == [first]
        asked = preparations.begin(session, cluster_id=a.cluster_id, now=START)
        assert asked is not None
        assert set(asked.generations) == {a.id, b.id}
        for _ in range(2):
            preparations.store(session, asked=asked, job_id=a.id, document={"job_id": a.id})
        assert list(preparations.wanted(session).values()) == [first]
        preparations.store(session, asked=asked, job_id=b.id, document={"job_id": b.id})
        assert preparations.wanted(session) == {}
        occupancy.replace_spares(session, reference=CLUSTER, nodes=["n6"])
        (second,) = preparations.wanted(session).values()
        assert second != first


@on_sqlite
def test_the_safe_answer_reads_what_was_prepared_for_jobs_that_are_hit(sessions: SessionFactory) -> None:
    """Documents of the other jobs, most bytes of a large cluster, stay in the database."""
    with transaction(sessions) as session:
        replan_id, a, b = failed_job(session)
        asked = preparations.begin(session, cluster_id=a.cluster_id, now=START)
        assert asked is not None
        for job in (a, b):
            preparations.store(session, asked=asked, job_id=job.id, document={"job_id": job.id})
        found = replan_problems.situation(session, cluster_id=a.cluster_id, replan_id=replan_id, now=START)
        problem = safe_answers.problem_of(session, found)
        assert safe_answers.prepared_for(session, problem, found) == [{"job_id": a.id}]
