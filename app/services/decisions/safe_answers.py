"""The first answer to a failure, there within a second: prepared in advance, or made without a search."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.db.running_tables import PreparedJobRow
from app.serialization import load
from app.services.decisions import replan_problems, replan_rows, replan_solves
from app.services.decisions.replan_problems import Situation
from cluster_models.errors import MeshwrightError
from cluster_models.jobs.recovery import BatchDecision
from solver.replanning.shared import SharedProblem

log = structlog.get_logger(__name__)


def answer_safely(sessions: SessionFactory, *, replan_id: str, now: datetime | None = None) -> bool:
    """Work out and store the safe answer of an undecided replan; returns whether it has one now.

    To be called once the reports are committed: it computes outside any transaction.  When it breaks, the keeper
    tries again, and the solver's answer comes all the same.
    """
    now = now or datetime.now(UTC)
    with transaction(sessions) as session:
        row = replan_rows.locked(session, replan_id)
        if row.status not in replan_solves.UNDECIDED or row.safe_revision >= row.revision:
            return row.safe_revision >= row.revision
        revision = row.revision
        found = replan_problems.situation(session, cluster_id=row.cluster_id, replan_id=row.id, now=now)
        problem = problem_of(session, found)
        prepared = prepared_for(session, problem, found)
    try:
        decision = work_out(problem, prepared)
    except MeshwrightError as broken:
        log.warning("no_safe_answer", replan_id=replan_id, reason=str(broken)[:300])
        return False
    with transaction(sessions) as session:
        return replan_solves.store_safe(
            session, replan_id=replan_id, revision=revision, base=found.base, decision=decision
        )


def problem_of(session: Session, found: Situation) -> SharedProblem:
    """The question that a situation puts."""
    request = replan_problems.request_of(session, snapshot={}, document=found.document, as_values=True)
    return request.to_shared(found.snapshot)


def prepared_for(session: Session, problem: SharedProblem, found: Situation) -> list[dict[str, Any]]:
    """Answers prepared for the jobs that are hit; the safe answer leaves all others alone."""
    # Imported late: only whoever answers failures pays for loading the solver.
    from solver.replanning.touched import touched  # noqa: PLC0415

    plans = [found.base[job.id] for job in touched(problem.training).hit]
    query = select(PreparedJobRow.document).where(PreparedJobRow.running_plan_id.in_(plans))
    return list(session.scalars(query))


def work_out(problem: SharedProblem, prepared: list[dict[str, Any]]) -> BatchDecision:
    """The safe answer to a question, with what was prepared for its jobs."""
    from solver.replanning.prepared import PreparedJob  # noqa: PLC0415
    from solver.replanning.safe_shared import safe_shared  # noqa: PLC0415

    tables = []
    for document in prepared:
        try:
            tables.append(load(PreparedJob, document))
        except ValueError as broken:  # prepared by another version of the product: do without
            log.warning("preparation_not_readable", reason=str(broken)[:300])
    return safe_shared(problem, tables)
