"""The life of a replan's row while its window is open and while it is solved.

As with plans, a replan that somebody approved, called off or overtook meanwhile is not changed by a solver that
comes late: every change is a guarded UPDATE.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.db.replan_tables import ReplanRow
from app.db.status import ReplanStatus, ReplanStep
from app.replan_request import ReplanRequest
from app.serialization import jsonable, load
from app.services.clusters import snapshots
from app.services.decisions import (
    approval_policy,
    replan_answers,
    replan_problems,
    replan_rows,
    replan_steps,
    reports,
)
from app.services.decisions import replan_settings as all_settings
from app.services.decisions.replan_steps import SERVICE
from app.services.health import health_events
from app.services.planning.solves import MAX_RESCUES, failure
from app.services.webhooks import announcements
from app.services.webhooks.webhooks import EventType
from cluster_models.jobs.recovery import BatchDecision
from solver.replanning.values import moves_less_for_the_same

UNDECIDED: Final = (ReplanStatus.COLLECTING, ReplanStatus.SOLVING)


def due(session: Session, *, now: datetime) -> list[str]:
    """Replans whose window has ended and that nobody has solved yet, oldest first."""
    query = (
        select(ReplanRow.id)
        .where(ReplanRow.status.in_(UNDECIDED), ReplanRow.window_ends_at <= now)
        .order_by(ReplanRow.created_at)
    )
    return list(session.scalars(query))


def begin_attempt(session: Session, *, replan_id: str, now: datetime) -> ReplanRequest | None:
    """Close the window, freeze what is known, and return what to solve; ``None`` where nothing is left to solve.

    A replan whose failures were all taken back within the window calls itself off.
    """
    if session.get(ReplanRow, replan_id) is None:
        return None
    row = replan_rows.locked(session, replan_id)
    if row.status == ReplanStatus.COLLECTING:
        if reports.is_over(session, row=row, now=now):
            reports.call_off(session, row=row)
            return None
        found = replan_problems.situation(session, cluster_id=row.cluster_id, replan_id=row.id, now=now)
        snapshots.store_derived(session, snapshot=found.snapshot, cluster_id=row.cluster_id)
        frozen = {"snapshot_id": found.snapshot.id, "request": found.document, "solving_at": now}
        values = {"status": ReplanStatus.SOLVING, **frozen}
        replan_rows.change(session, replan_id, [ReplanStatus.COLLECTING], **values)
    if not replan_rows.change(session, replan_id, [ReplanStatus.SOLVING], attempts=ReplanRow.attempts + 1):
        return None
    return get_request(session, replan_id=replan_id)


def get_request(session: Session, *, replan_id: str) -> ReplanRequest | None:
    """Request that a replan is (or was) solved for, ``None`` before its window has ended; raises ``NotFound``."""
    row = replan_rows.row_of(session, replan_id)
    if row.request is None or row.snapshot_id is None:
        return None
    snapshot = snapshots.get_snapshot(session, snapshot_id=row.snapshot_id)
    return replan_problems.request_of(session, snapshot=jsonable(snapshot), document=row.request)


def save_progress(session: Session, *, replan_id: str, progress: dict[str, Any] | None) -> bool:
    """Store the newest progress, if there is any; returns whether the answer is still wanted."""
    if progress is not None:
        return replan_rows.change(session, replan_id, [ReplanStatus.SOLVING], progress=progress)
    return session.scalar(select(ReplanRow.status).where(ReplanRow.id == replan_id)) == ReplanStatus.SOLVING


def finish(session: Session, *, replan_id: str, decision: dict[str, Any]) -> bool:
    """Store the solver's answer as the proposal, and approve it where the cluster's settings say so.

    Returns whether it was wanted.
    """
    row = replan_rows.row_of(session, replan_id)
    replan_rows.locked(session, replan_id)
    if row.request is None:
        return False
    base = replan_problems.base_of(row.request)
    found = _with_quarantine(session, row.cluster_id, _at_least_safe(row, load(BatchDecision, decision)))
    stored = replan_rows.change(
        session,
        replan_id,
        [ReplanStatus.SOLVING],
        status=ReplanStatus.PROPOSED,
        decision=replan_answers.document_of(found, base),
        has_decision=True,
        summary=jsonable(replan_answers.summary_of(found)),
        proposed_at=datetime.now(UTC),
    )
    if stored:
        _proposed(session, replan_id)
    return stored


def finish_without(session: Session, *, replan_id: str, error: dict[str, Any]) -> bool:
    """The solver found no answer: the safe one is proposed where there is one, else the replan failed."""
    row = replan_rows.row_of(session, replan_id)
    replan_rows.locked(session, replan_id)
    if row.safe is not None and row.safe_revision == row.revision:
        values: dict[str, Any] = {"status": ReplanStatus.PROPOSED, "proposed_at": datetime.now(UTC)}
        if stored := replan_rows.change(session, replan_id, UNDECIDED, error=error, **values):
            _proposed(session, replan_id)
        return stored
    values = {"status": ReplanStatus.FAILED, "finished_at": datetime.now(UTC)}
    if stored := replan_rows.change(session, replan_id, UNDECIDED, error=error, **values):
        replan_rows.undo(session, replan_id=replan_id)
        replan_steps.take(session, row=row, step=ReplanStep.FAILED, actor=SERVICE)
    return stored


def count_rescue(session: Session, *, replan_id: str) -> bool:
    """Count one more worker lost under this replan; returns whether it may be tried again."""
    rescues = session.scalar(
        update(ReplanRow)
        .where(ReplanRow.id == replan_id, ReplanRow.status.in_(UNDECIDED))
        .values(rescues=ReplanRow.rescues + 1)
        .returning(ReplanRow.rescues)
    )
    session.expire_all()
    if rescues is None or rescues <= MAX_RESCUES:
        return True
    told = f"The decision was given up: {rescues} workers vanished while they worked on it."
    finish_without(session, replan_id=replan_id, error=failure(told, "The safe answer can be approved."))
    return False


def without_safe_answer(session: Session) -> list[str]:
    """Replans that wait for a safe answer, or for one that knows of the newest report."""
    query = select(ReplanRow.id).where(
        ReplanRow.status.in_(UNDECIDED), ReplanRow.safe_revision < ReplanRow.revision
    )
    return list(session.scalars(query))


def store_safe(
    session: Session, *, replan_id: str, revision: int, base: dict[str, str], decision: BatchDecision
) -> bool:
    """Keep the safe answer for the reports up to ``revision``; returns whether it was wanted."""
    row = replan_rows.row_of(session, replan_id)
    if row.status not in UNDECIDED or row.safe_revision >= revision:
        return False
    found = _with_quarantine(session, row.cluster_id, decision)
    stored = replan_rows.change(
        session,
        replan_id,
        UNDECIDED,
        safe=replan_answers.document_of(found, base),
        safe_revision=revision,
        summary=jsonable(replan_answers.summary_of(found)),
    )
    if stored:
        settings = all_settings.settings_of(session, cluster_id=row.cluster_id)
        _object(session, replan_id, approval_policy.warnings(session, row=row, settings=settings))
        announcements.tell_of_replan(session, event_type=EventType.SAFE_ANSWER, row=row)
    return stored


def _proposed(session: Session, replan_id: str) -> None:
    """Announce a proposal, and approve it where the cluster's settings say so and nothing speaks against it."""
    row = replan_rows.row_of(session, replan_id)
    settings = all_settings.settings_of(session, cluster_id=row.cluster_id)
    reasons = approval_policy.warnings(session, row=row, settings=settings)
    if settings.auto_approve:
        kept = replan_answers.kept_answer(row, safe=False)
        assert kept is not None, "an answer is proposed"
        decision = load(BatchDecision, kept["decision"])
        reasons += approval_policy.limits_passed(session, row=row, settings=settings, decision=decision)
    _object(session, replan_id, reasons)
    announcements.tell_of_replan(session, event_type=EventType.PROPOSED, row=row)
    if settings.auto_approve and not reasons and (refusal := replan_answers.approve_if_possible(session, row=row)):
        _object(session, replan_id, (refusal,))


def _object(session: Session, replan_id: str, reasons: tuple[str, ...]) -> None:
    """Keep what speaks against approving an answer unseen, in place of what did before."""
    kept = {"reasons": list(reasons)} if reasons else None
    replan_rows.change(session, replan_id, (*UNDECIDED, ReplanStatus.PROPOSED), objections=kept)


def _at_least_safe(row: ReplanRow, decision: BatchDecision) -> BatchDecision:
    """The safe answer with the decision's bound where it does more for the same jobs: a search may be cut short.

    The decision stands where predictions cannot tell them apart and it moves fewer ranks.
    """
    if row.safe is None or row.safe_revision != row.revision:
        return decision
    safe = load(BatchDecision, row.safe["decision"])
    same_jobs = _decided(safe) == _decided(decision)
    if not same_jobs or safe.objective <= decision.objective or moves_less_for_the_same(decision, safe):
        return decision
    bound = max(decision.bound, safe.objective)
    gap = (bound - safe.objective) / bound
    return replace(safe, bound=bound, gap=gap, stopped_by=decision.stopped_by)


def _decided(decision: BatchDecision) -> set[str]:
    return {made.job_id for made in replan_answers.made_of(decision)}


def _with_quarantine(session: Session, cluster_id: str, decision: BatchDecision) -> BatchDecision:
    """The decision with advice from the whole history, of which the solver sees this replan's reports only."""
    settings = all_settings.settings_of(session, cluster_id=cluster_id)
    events = health_events.read_known(session, cluster_id=cluster_id)
    found = settings.keep_out(events, now=datetime.now(UTC))
    return replace(decision, quarantine=found)
