"""Failures that come twice, late, wrongly or while others are decided on, by the real solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.db.status import ReplanStatus
from app.db.webhook_tables import WebhookDeliveryRow
from app.events.reading import ToldEvent
from app.serialization import jsonable
from app.services.decisions import replan_solves, replans, reports
from app.services.decisions.safe_answers import answer_safely
from app.services.errors import WrongStatus
from app.services.health import health_events
from app.services.running import occupancy
from app.services.running.running_jobs import JobRecord
from app.services.webhooks import webhooks
from cluster_models.cluster.topology import NodeState
from cluster_models.health.conditions import HYSTERESIS_S
from cluster_models.health.events import EntityKind, HealthState
from cluster_models.jobs.recovery import BatchDecision, RecoveryAction
from cluster_models.jobs.running import RecoveryPolicy
from solver.replanning.check import check_decision
from solver.replanning.decide import decide
from solver.replanning.problem import ReplanProblem
from tests.app.running_rows import CLUSTER, START, add_cluster, add_job, nodes_held, occupied, report, told

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
SAME_SHAPE = RecoveryPolicy(may_reshape=False)


def two_jobs(session: Session, *, spares: Sequence[str] = ("n6", "n7")) -> tuple[JobRecord, JobRecord]:
    """Jobs ``a`` on n0, n1 and ``b`` on n2, n3, which keep their shape, and spares."""
    add_cluster(session)
    jobs = tuple(
        add_job(session, name, first, second, weight=weight, recovery=SAME_SHAPE)
        for weight, name, first, second in ((1.0, "a", "n0", "n1"), (2.0, "b", "n2", "n3"))
    )
    occupancy.replace_spares(session, reference=CLUSTER, nodes=list(spares))
    return jobs[0], jobs[1]


def opened(session: Session, *events: ToldEvent, at_s: float = 0.0) -> str:
    """The replan that reports open."""
    replan_id = report(session, *events, at_s=at_s).replan_id
    assert replan_id is not None
    return replan_id


def asked(session: Session, replan_id: str, *, at_s: float) -> ReplanProblem:
    """The question that a replan puts once its window has ended."""
    request = replan_solves.begin_attempt(session, replan_id=replan_id, now=START + timedelta(seconds=at_s))
    assert request is not None
    return request.to_problem()


def solved(session: Session, replan_id: str, *, at_s: float = 61.0) -> BatchDecision:
    """The solver's answer, proposed."""
    problem = asked(session, replan_id, at_s=at_s)
    decision = decide(problem)
    assert check_decision(problem, decision) == ()
    assert replan_solves.finish(session, replan_id=replan_id, decision=jsonable(decision))
    return decision


def apply(session: Session, replan_id: str) -> None:
    """Approve a proposal and carry it out."""
    replans.approve_replan(session, replan_id=replan_id)
    replans.begin_applying(session, replan_id=replan_id)
    replans.finish_applied(session, replan_id=replan_id)


def test_a_node_that_failed_three_times_is_no_spare_though_it_is_back(sessions: SessionFactory) -> None:
    """Scenario 6: the repeat offender stands nearest and is well, and the other spare is taken; advice names it."""
    with transaction(sessions) as session:
        a, _b = two_jobs(session, spares=["n4", "n7"])
        for days in (1, 2, 3):
            at_s = -86_400.0 * days
            report(session, told("n4", at_s=at_s), told("n4", HealthState.RECOVERED, at_s=at_s + 60))
        replan_id = opened(session, told("n0"))
        decision = solved(session, replan_id)
        assert decision.spares_used == ("n7",)
        apply(session, replan_id)
        assert nodes_held(session, a) == {"n7", "n1"}
        replan = replans.get_replan(session, replan_id=replan_id)
        assert replan.summary is not None
        now = START + timedelta(seconds=61)
        assert [each.node for each in health_events.quarantine_now(session, reference=CLUSTER, now=now)] == ["n4"]


def test_a_failure_while_another_is_solved_is_decided_with_it(sessions: SessionFactory) -> None:
    """Scenario 8: the late answer to the first question changes nothing; the second one knows of both."""
    with transaction(sessions) as session:
        a, b = two_jobs(session)
        first = opened(session, told("n0"))
        outdated = decide(asked(session, first, at_s=61))
        second = opened(session, told("n2", at_s=65), at_s=65)
        assert not replan_solves.finish(session, replan_id=first, decision=jsonable(outdated))
        decision = solved(session, second, at_s=126)
        assert {made.job_name: made.action for made in decision.jobs} == dict.fromkeys("ab", RecoveryAction.SWAP)
        assert decision.spares_used == ("n6", "n7")
        apply(session, second)
        assert nodes_held(session, a) | nodes_held(session, b) == {"n1", "n3", "n6", "n7"}
        assert replans.get_replan(session, replan_id=first).superseded_by == second


def test_a_spare_that_fails_while_it_is_filled_gives_way_to_the_next(sessions: SessionFactory) -> None:
    """Scenario 9: the job's state is where it was; with no spare left it does not go back to the dead one."""
    with transaction(sessions) as session:
        a, b = two_jobs(session)
        first = opened(session, told("n0"))
        (taken,) = solved(session, first).spares_used
        (other,) = {"n6", "n7"} - {taken}
        replans.approve_replan(session, replan_id=first)
        replans.begin_applying(session, replan_id=first)
        second = opened(session, told(taken, at_s=90), at_s=90)
        decision = solved(session, second, at_s=151)
        assert decision.spares_used == (other,)
        (made,) = decision.jobs
        assert {move.from_node for move in made.migration.moved} == {"n0"}
        apply(session, second)
        assert nodes_held(session, a) == {other, "n1"}
        assert {gpu[0] for gpu in occupied(session)} == {other, "n1", *nodes_held(session, b)}


def test_a_node_that_returns_after_two_minutes_gets_nothing_back(sessions: SessionFactory) -> None:
    """Scenario 13: nothing moves for it; it is a spare again only once it has been quiet for a while."""
    with transaction(sessions) as session:
        a, b = two_jobs(session, spares=["n7"])
        first = opened(session, told("n0"))
        solved(session, first)
        apply(session, first)
        assert report(session, told("n0", HealthState.RECOVERED, at_s=120), at_s=120).replan_id is None
        assert nodes_held(session, a) == {"n7", "n1"}
        flapping = opened(session, told("n2", at_s=130), at_s=130)
        problem = asked(session, flapping, at_s=191)
        assert problem.nodes["n0"].state is NodeState.FAILED
        assert "n0" not in problem.spares
        replans.cancel_replan(session, replan_id=flapping)
        later = 121 + HYSTERESIS_S
        quiet = reports.request_replan(session, reference=CLUSTER, now=START + timedelta(seconds=later))
        decision = solved(session, quiet, at_s=later)
        assert decision.spares_used == ("n0",)
        assert {made.job_id for made in decision.jobs} == {b.id}


def test_reports_of_strangers_are_kept_and_shown_and_touch_nobody(sessions: SessionFactory) -> None:
    """Scenario 14: an unknown name, and a node in no job; the unknown one is announced by name."""
    with transaction(sessions) as session:
        two_jobs(session)
        webhooks.create_endpoint(session, url="https://a.example/all")
        before = occupied(session)
        answer = report(session, told("n5"), told("ip-10-0-0-9", known=False))
        assert (answer.unknown, answer.replan_id) == (1, None)
        (unknown,) = health_events.list_events(session, reference=CLUSTER, limit=9, known=False).items
        assert (unknown.told_name, unknown.event.entity.node) == ("ip-10-0-0-9", "ip-10-0-0-9")
        (payload,) = session.scalars(select(WebhookDeliveryRow.payload))
        assert "ip-10-0-0-9" in str(payload)
        conditions = health_events.conditions_now(session, reference=CLUSTER, now=START)
        assert [each.entity.node for each in conditions] == ["n5"]
        assert occupied(session) == before


def test_the_order_and_number_of_reports_change_no_decision(sessions: SessionFactory) -> None:
    """Scenario 15: a failure, an older recovery that comes late, a slow GPU: in any order, some of them twice."""
    stale = told("n0", HealthState.RECOVERED, at_s=-5, number="1")
    lost = told("n0", at_s=0, number="2")
    other = told("n2", kind=EntityKind.GPU, part="1", at_s=3, number="3")
    orders = [[stale, lost, other], [other, lost, stale], [lost, other, lost, stale, other], [lost, lost, other]]
    found = []
    for order in orders:
        with sessions() as session:
            two_jobs(session)
            at_s = {id(event): 10.0 * place for place, event in enumerate(order)}
            ids = {report(session, event, at_s=at_s[id(event)]).replan_id for event in order}
            (replan_id,) = filter(None, ids)
            decision = solved(session, replan_id, at_s=119)
            found.append(
                [
                    (made.job_name, made.action, made.value_flop, made.plan and made.plan.placement)
                    for made in sorted(decision.jobs, key=lambda made: made.job_name)
                ]
            )
            session.rollback()
    assert len(found[0]) == 2
    for one, another in pairwise(found):
        assert one == another


def _safe(sessions: SessionFactory, replan_id: str) -> None:
    assert answer_safely(sessions, replan_id=replan_id, now=START)


def _solve(sessions: SessionFactory, replan_id: str) -> None:
    with transaction(sessions) as session:
        solved(session, replan_id)


def _approve(sessions: SessionFactory, replan_id: str) -> None:
    with transaction(sessions) as session:
        replans.approve_replan(session, replan_id=replan_id)


def _begin(sessions: SessionFactory, replan_id: str) -> None:
    with transaction(sessions) as session:
        replans.begin_applying(session, replan_id=replan_id)


_STEPS = (_safe, _solve, _approve, _begin)


@pytest.mark.parametrize("steps", range(len(_STEPS) + 1))
def test_a_false_alarm_can_be_called_off_until_it_is_applied(sessions: SessionFactory, steps: int) -> None:
    """Scenario 16: at every step before, all GPUs are whose they were, and the same may be asked again."""
    with transaction(sessions) as session:
        two_jobs(session)
        before = occupied(session)
        replan_id = opened(session, told("n0"))
    done: Sequence[Callable[[SessionFactory, str], None]] = _STEPS[:steps]
    for step in done:
        step(sessions, replan_id)
    with transaction(sessions) as session:
        replans.cancel_replan(session, replan_id=replan_id)
        assert replans.get_replan(session, replan_id=replan_id).status is ReplanStatus.CANCELLED
        assert occupied(session) == before
        assert all(spare.free for spare in occupancy.list_spares(session, reference=CLUSTER))
        again = reports.request_replan(session, reference=CLUSTER, now=START)
        solved(session, again)
        apply(session, again)
        with pytest.raises(WrongStatus):
            replans.cancel_replan(session, replan_id=again)
