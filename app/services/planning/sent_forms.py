"""Plans that forms ask for: a form that is sent twice, as by two clicks, finds the plan of the first."""

from __future__ import annotations

from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session, undefer

from app.db.locks import one_at_a_time
from app.db.status import OPEN_STATUSES
from app.db.tables import PlanRow
from app.serialization import canonical
from app.services.planning.requests import AnyPlanRequest
from app.services.planning.submission import submit_plan
from app.services.rows import row_by_id
from app.settings import Settings

_LOOKED_AT: Final = 8
"""Newest open plans of a model on a cluster that are compared: whoever sends twice does it at once."""


def sent_once(session: Session, settings: Settings, request: AnyPlanRequest) -> str:
    """Id of the plan of a request: one of the same problem that waits or runs, else a new one."""
    one_at_a_time(session, "plan form")
    with session.begin_nested() as savepoint:
        made = submit_plan(session, request=request, settings=settings)
        if (found := _the_same(session, made)) is not None:
            savepoint.rollback()
            return found
    return made


def _the_same(session: Session, plan_id: str) -> str | None:
    """An open plan with problem, cluster and options of that one."""
    row = row_by_id(session, PlanRow, plan_id, "plan")
    asked = canonical((row.problem, row.options))
    query = (
        select(PlanRow)
        .where(
            PlanRow.id != plan_id,
            PlanRow.kind == row.kind,
            PlanRow.status.in_(OPEN_STATUSES),
            PlanRow.snapshot_id == row.snapshot_id,
            PlanRow.model_name == row.model_name,
        )
        .order_by(PlanRow.created_at.desc())
        .limit(_LOOKED_AT)
        .options(undefer(PlanRow.problem))
    )
    return next(
        (each.id for each in session.scalars(query) if canonical((each.problem, each.options)) == asked), None
    )
