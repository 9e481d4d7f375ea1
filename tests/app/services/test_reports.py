"""Reports are kept once; those that touch a job open a replan, and later ones join it, overtake it or end it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.db.status import ReplanStatus
from app.events.reading import ToldEvent
from app.serialization import jsonable
from app.services.decisions import replan_settings, replan_solves, replans, reports, timed_replans
from app.services.decisions.replan_settings import ReplanSettings
from app.services.errors import Conflict, IdempotencyKeyReused
from app.services.health import health_events
from app.services.running import occupancy, running_jobs
from app.services.running.running_jobs import JobRecord
from cluster_models.errors import InvalidInput
from cluster_models.health.events import EntityKind, HealthState
from cluster_models.jobs.recovery import RecoveryAction
from tests.app.running_rows import (
    CLUSTER,
    START,
    add_cluster,
    add_job,
    decided,
    nodes_held,
    one_replica,
    plan_on,
    report,
    solved,
    told,
)

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def _two_jobs(session: Session) -> None:
    add_cluster(session)
    add_job(session, "a", "n0", "n1")
    add_job(session, "b", "n2", "n3")
    occupancy.replace_spares(session, reference=CLUSTER, nodes=["n6", "n7"])


def _approved_swap(session: Session) -> tuple[JobRecord, str]:
    """A third job that is to leave its failed node n4 for the spare n6, and the replan that says so."""
    _two_jobs(session)
    job = add_job(session, "c", "n4", "n5")
    replan_id = report(session, told("n4")).replan_id
    assert replan_id is not None
    solved(session, replan_id, decided({job: (RecoveryAction.SWAP, plan_on("n6", "n5"))}))
    replans.approve_replan(session, replan_id=replan_id)
    return job, replan_id


def test_a_report_is_kept_once_however_often_it_comes(sessions: SessionFactory) -> None:
    """Alike in source, id and state: counted.  Another state under the same id is another report."""
    with transaction(sessions) as session:
        _two_jobs(session)
        first = report(session, told("n5", number="1"), told("n5", number="1"), told("n4", number="2"))
        assert (len(first.events), first.repeated, first.replan_id) == (2, 1, None)
        again = report(session, told("n5", number="1"), told("n5", HealthState.RECOVERED, number="1"))
        assert (len(again.events), again.repeated) == (1, 1)
        listed = health_events.list_events(session, reference=CLUSTER, limit=2)
        rest = health_events.list_events(session, reference=CLUSTER, limit=2, cursor=listed.next_cursor)
        by_id = {(each.event.source_id, each.event.state): each for each in listed.items + rest.items}
        assert len(by_id) == 3
        assert by_id["1", HealthState.FAILED].repeats == 2


def test_reports_within_a_window_are_one_replan(sessions: SessionFactory) -> None:
    """The second joins the first, the window keeps its end, and the safe answer is wanted anew."""
    with transaction(sessions) as session:
        _two_jobs(session)
        first = report(session, told("n0"))
        second = report(session, told("n2", at_s=20), at_s=20)
        assert first.replan_id == second.replan_id is not None
        assert first.wants_safe_answer
        assert second.wants_safe_answer
        replan = replans.get_replan(session, replan_id=second.replan_id)
        assert replan.status is ReplanStatus.COLLECTING
        assert replan.window_ends_at == START + timedelta(seconds=60)
        assert len(replan.event_ids) == 2
        assert replan.reason.startswith("node n0 failed")
        assert replan_solves.due(session, now=START + timedelta(seconds=59)) == []
        assert replan_solves.due(session, now=START + timedelta(seconds=60)) == [replan.id]


@on_sqlite
@pytest.mark.parametrize(
    "event",
    [
        told("n5"),
        told("gone-01", known=False),
        told("n0", HealthState.SUSPECTED),
        told("n0", HealthState.RECOVERED),
        told("n0", kind=EntityKind.LINK, part="n2"),
        told("", kind=EntityKind.SWITCH, part="leaf:leaf-1"),
    ],
    ids=["in no job", "unknown", "suspected", "recovered", "link of two jobs", "switch of none"],
)
def test_what_touches_no_job_is_kept_and_opens_nothing(sessions: SessionFactory, event: ToldEvent) -> None:
    """Reports on parts of no job, suspicions, and names that the cluster does not have."""
    with transaction(sessions) as session:
        _two_jobs(session)
        answer = report(session, event)
        assert answer.replan_id is None
        assert len(answer.events) == 1
        assert replans.open_replan_of(session, reference=CLUSTER) is None


@on_sqlite
@pytest.mark.parametrize(
    "event",
    [
        told("n0", HealthState.DRAINING),
        told("n0", HealthState.DEGRADED),
        told("n1", kind=EntityKind.GPU, part="3"),
        told("n1", kind=EntityKind.GPU, part="PCI:4e"),
        told("n1", kind=EntityKind.NIC, part="mlx5_0"),
        told("n0", kind=EntityKind.LINK, part="n1"),
        told("", kind=EntityKind.SWITCH, part="leaf:leaf-0"),
    ],
    ids=["draining", "degraded", "GPU", "GPU by bus", "card", "link", "switch"],
)
def test_every_part_of_a_job_counts(sessions: SessionFactory, event: ToldEvent) -> None:
    """Nodes, their GPUs and cards, links within the job, switches above it."""
    with transaction(sessions) as session:
        _two_jobs(session)
        assert report(session, event).replan_id is not None


def test_what_recovers_within_the_window_calls_the_replan_off(sessions: SessionFactory) -> None:
    """The reports stay; a replan with another node still out goes on."""
    with transaction(sessions) as session:
        _two_jobs(session)
        opened = report(session, told("n0"), told("n2"))
        assert opened.replan_id is not None
        report(session, told("n0", HealthState.RECOVERED, at_s=30), at_s=30)
        assert replans.get_replan(session, replan_id=opened.replan_id).status is ReplanStatus.COLLECTING
        report(session, told("n2", HealthState.RECOVERED, at_s=40), at_s=40)
        replan = replans.get_replan(session, replan_id=opened.replan_id)
        assert replan.status is ReplanStatus.CANCELLED
        assert len(replan.event_ids) == 4
        again = report(session, told("n0", at_s=50), at_s=50)
        assert again.replan_id not in (None, opened.replan_id)


def test_another_recovery_calls_no_answer_off(sessions: SessionFactory) -> None:
    """While ranks leave a failed node another node fails and is well again: the first is still to be decided on."""
    with transaction(sessions) as session:
        job, first = _approved_swap(session)
        replans.begin_applying(session, replan_id=first)
        second = report(session, told("n0", at_s=90), at_s=90).replan_id
        assert second is not None
        report(session, told("n0", HealthState.RECOVERED, at_s=95), at_s=95)
        assert replans.get_replan(session, replan_id=second).status is ReplanStatus.COLLECTING
        assert (
            replan_solves.begin_attempt(session, replan_id=second, now=START + timedelta(seconds=200)) is not None
        )
        assert nodes_held(session, job) == {"n6", "n5"}


def test_an_answer_that_is_asked_for_again_is_given(sessions: SessionFactory) -> None:
    """An operator who wants a new decision after approving one gets it, not a cancellation."""
    with transaction(sessions) as session:
        _approved_swap(session)
        second = reports.request_replan(session, reference=CLUSTER, reason="decide now", now=START)
        assert (
            replan_solves.begin_attempt(session, replan_id=second, now=START + timedelta(seconds=200)) is not None
        )


@on_sqlite
def test_a_spare_that_fails_does_not_call_a_wake_up_off(sessions: SessionFactory) -> None:
    """A paused job is about to start again when an idle spare fails: it is decided anew, and not forgotten."""
    with transaction(sessions) as session:
        _two_jobs(session)
        opened = report(session, told("n0")).replan_id
        assert opened is not None
        a, b = (running_jobs.get_job(session, reference=CLUSTER, job=name) for name in "ab")
        solved(session, opened, decided({a: (RecoveryAction.PAUSE, None)}, untouched=[b]))
        replans.approve_replan(session, replan_id=opened)
        replans.finish_applied(session, replan_id=opened)
        report(session, told("n0", HealthState.RECOVERED, at_s=3600), at_s=3600)
        (woken,) = timed_replans.wake_waiting(session, now=START + timedelta(seconds=4300))
        solved(session, woken, decided({a: (RecoveryAction.SWAP, plan_on("n6", "n7"))}, untouched=[b]), at_s=4301)
        later = report(session, told("n7", at_s=4310), at_s=4310).replan_id
        assert later not in (None, woken)
        assert later is not None
        assert (
            replan_solves.begin_attempt(session, replan_id=later, now=START + timedelta(seconds=4400)) is not None
        )


def test_a_failure_while_it_is_solved_overtakes_the_replan(sessions: SessionFactory) -> None:
    """The new one has all reports and its own window; the solver of the old one is told to stop."""
    with transaction(sessions) as session:
        _two_jobs(session)
        first = report(session, told("n0")).replan_id
        assert first is not None
        assert replan_solves.begin_attempt(session, replan_id=first, now=START + timedelta(seconds=60)) is not None
        assert replan_solves.save_progress(session, replan_id=first, progress={"phase": "search"})
        second = report(session, told("n3", at_s=65), at_s=65).replan_id
        assert second is not None
        old, new = (replans.get_replan(session, replan_id=each) for each in (first, second))
        assert (old.status, old.superseded_by, old.event_ids) == (ReplanStatus.SUPERSEDED, second, ())
        assert (new.status, len(new.event_ids)) == (ReplanStatus.COLLECTING, 2)
        assert new.window_ends_at == START + timedelta(seconds=125)
        assert not replan_solves.save_progress(session, replan_id=first, progress=None)


def test_a_failure_while_ranks_move_keeps_what_was_claimed(sessions: SessionFactory) -> None:
    """The spare that is being filled fails: its claim is the new replan's, and the next answer takes another."""
    with transaction(sessions) as session:
        job, first = _approved_swap(session)
        replans.begin_applying(session, replan_id=first)
        assert nodes_held(session, job) == {"n6", "n5"}
        second = report(session, told("n6", at_s=90), at_s=90).replan_id
        assert second is not None
        assert nodes_held(session, job) == {"n6", "n5"}
        request = replan_solves.begin_attempt(session, replan_id=second, now=START + timedelta(seconds=200))
        assert request is not None
        assert request.spares == ["n7"]
        problem = request.to_problem()
        assert {place.node for one in problem.jobs if one.id == job.id for place in one.plan.placement.ranks} == {
            "n4",
            "n5",
        }
        other = decided({job: (RecoveryAction.SWAP, plan_on("n7", "n5"))})
        assert replan_solves.finish(session, replan_id=second, decision=jsonable(other))
        replans.approve_replan(session, replan_id=second)
        replans.finish_applied(session, replan_id=second)
        assert nodes_held(session, job) == {"n7", "n5"}
        assert set(occupancy.held_gpus(session, cluster_id=job.cluster_id).values()) >= {job.id}
        assert not {node for node, _ in occupancy.held_gpus(session, cluster_id=job.cluster_id)} & {"n4", "n6"}


@on_sqlite
def test_a_failed_spare_counts_while_an_answer_may_have_given_it_out(sessions: SessionFactory) -> None:
    """A spare that fails after the proposal makes a new replan; one that fails alone makes none."""
    with transaction(sessions) as session:
        _two_jobs(session)
        assert report(session, told("n6")).replan_id is None
        opened = report(session, told("n0", at_s=5), at_s=5).replan_id
        assert opened is not None
        replan_solves.begin_attempt(session, replan_id=opened, now=START + timedelta(seconds=66))
        overtaken = report(session, told("n7", at_s=70), at_s=70)
        assert overtaken.replan_id not in (None, opened)


@on_sqlite
def test_what_was_decided_on_does_not_count_again(sessions: SessionFactory) -> None:
    """A second source that tells of the same failure, and a late report of an older one, open nothing."""
    with transaction(sessions) as session:
        _two_jobs(session)
        opened = report(session, told("n0", HealthState.DEGRADED, at_s=10), at_s=10).replan_id
        assert opened is not None
        replans.cancel_replan(session, replan_id=opened)
        late = report(session, told("n0", HealthState.DEGRADED, at_s=-100), at_s=300)
        assert late.replan_id is None
        assert replans.open_replan_of(session, reference=CLUSTER) is None
        assert report(session, told("n0", at_s=400), at_s=400).replan_id is not None


@on_sqlite
def test_a_replan_can_be_asked_for_once_for_each_key(sessions: SessionFactory) -> None:
    """A key finds its replan; with another request it is refused; without jobs there is nothing to decide."""
    with transaction(sessions) as session:
        add_cluster(session)
        with pytest.raises(Conflict, match="No job runs"):
            reports.request_replan(session, reference=CLUSTER, now=START)
        add_job(session, "a", "n0", "n1")
        first = reports.request_replan(session, reference=CLUSTER, idempotency_key="k", now=START)
        assert reports.request_replan(session, reference=CLUSTER, idempotency_key="k", now=START) == first
        with pytest.raises(IdempotencyKeyReused):
            reports.request_replan(session, reference=CLUSTER, idempotency_key="k", window_s=9.0, now=START)
        assert replan_solves.due(session, now=START) == [first]


@on_sqlite
def test_settings_of_a_cluster_are_kept_and_checked(sessions: SessionFactory) -> None:
    """Defaults until stored; values out of range are refused by name."""
    with transaction(sessions) as session:
        _two_jobs(session)
        assert replan_settings.get_settings(session, reference=CLUSTER) == ReplanSettings()
        changed = ReplanSettings(window_s=30.0, auto_approve=True, gpu_budget=12)
        replan_settings.replace_settings(session, reference=CLUSTER, settings=changed)
        assert replan_settings.get_settings(session, reference=CLUSTER) == changed
        opened = report(session, told("n0")).replan_id
        assert opened is not None
        assert replans.get_replan(session, replan_id=opened).window_ends_at == START + timedelta(seconds=30)
    for name, value in {"window_s": 10.0, "horizon_s": 0.0, "hysteresis_s": -1.0, "gpu_budget": 0}.items():
        with pytest.raises(InvalidInput, match=name):
            ReplanSettings(**{name: value})  # type: ignore[arg-type]  # one of several types


@on_sqlite
def test_old_reports_are_forgotten_but_not_what_holds(sessions: SessionFactory) -> None:
    """A report that a later one of the same source follows can go; the last word on a part stays for ever."""
    with transaction(sessions) as session:
        _two_jobs(session)
        report(session, told("n5", number="1"), told("n5", HealthState.RECOVERED, at_s=60), told("n4", number="2"))
        before = health_events.conditions_now(session, reference=CLUSTER, now=START + timedelta(days=999))
        health_events.forget_old(session, now=START + timedelta(days=999))
        left = health_events.list_events(session, reference=CLUSTER, limit=9).items
        assert {(each.event.entity.node, each.event.state) for each in left} == {
            ("n5", HealthState.RECOVERED),
            ("n4", HealthState.FAILED),
        }
        after = health_events.conditions_now(session, reference=CLUSTER, now=START + timedelta(days=999))
        assert [each.entity for each in after] == [each.entity for each in before]


@on_sqlite
def test_a_job_that_shrank_grows_back_by_itself(sessions: SessionFactory) -> None:
    """Once what it lost is well again a replan is opened; one on all the GPUs of its owner's plan is left alone."""
    with transaction(sessions) as session:
        add_cluster(session)
        a, b = add_job(session, "a", "n0", "n1"), add_job(session, "b", "n2", "n3")
        replan_id = report(session, told("n0")).replan_id
        assert replan_id is not None
        smaller = one_replica(plan_on("n1", "n1"))
        solved(session, replan_id, decided({a: (RecoveryAction.SHRINK_DATA_PARALLEL, smaller)}, untouched=[b]))
        replans.approve_replan(session, replan_id=replan_id)
        replans.finish_applied(session, replan_id=replan_id)
        assert nodes_held(session, a) == {"n1"}
        report(session, told("n0", HealthState.RECOVERED, at_s=3600), at_s=3600)
        quiet = START + timedelta(seconds=4300)
        (woken,) = timed_replans.wake_waiting(session, now=quiet)
        request = replan_solves.begin_attempt(session, replan_id=woken, now=quiet)
        assert request is not None
        assert {job.name: job.wanted_gpus for job in request.to_problem().jobs}["a"] == 8
        grown = decided({a: (RecoveryAction.SWAP, plan_on("n0", "n1"))}, untouched=[b])
        assert replan_solves.finish(session, replan_id=woken, decision=jsonable(grown))
        replans.approve_replan(session, replan_id=woken)
        replans.finish_applied(session, replan_id=woken)
        report(session, told("n5", at_s=5000), told("n5", HealthState.RECOVERED, at_s=5100), at_s=5100)
        assert timed_replans.wake_waiting(session, now=START + timedelta(seconds=9000)) == []


@on_sqlite
def test_a_job_waits_as_long_as_what_it_lost_takes_to_repair(sessions: SessionFactory) -> None:
    """A GPU is reset in minutes, a node takes hours; a job that lost both waits for the node."""
    with transaction(sessions) as session:
        _two_jobs(session)
        add_job(session, "c", "n4", "n5")
        settings = ReplanSettings(node_back_after_s=7200.0, gpu_back_after_s=900.0)
        replan_settings.replace_settings(session, reference=CLUSTER, settings=settings)
        gpus = [told(node, kind=EntityKind.GPU, part="1") for node in ("n0", "n2")]
        card = told("n4", kind=EntityKind.NIC, part="nic0")
        replan_id = report(session, *gpus, told("n3"), card).replan_id
        assert replan_id is not None
        request = replan_solves.begin_attempt(session, replan_id=replan_id, now=START + timedelta(seconds=61))
        assert request is not None
        problem = request.to_problem()
        expected = {job.name: problem.job_back_after_s(job) for job in problem.jobs}
        assert expected == {"a": 900.0, "b": 7200.0, "c": settings.back_after_s}
