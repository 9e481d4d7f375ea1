"""Turns of plans: tenants share the solvers alike, however many plans each of them asks for.

A plan's turn is its finish tag of self-clocked fair queueing (Golestani 1994): the larger of the virtual time and
the turn of its tenant's last plan, plus its time limit in seconds, the most that it may use.  The virtual time is
the smallest turn of all open plans, 0 when there is none.  So whoever asks for a plan while another tenant has
hundreds in line waits for two of these, and long searches wait longer than short ones.  Plans in the background
have turns behind all others.
"""

from __future__ import annotations

import math
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.status import OPEN_STATUSES
from app.db.tables import PlanRow

BACKGROUND: Final = 1_000_000_000
"""First turn of plans in the background."""
WHAT_IFS: Final = 2 * BACKGROUND
"""First turn of supposed failures, which come after all plans; the engine's priorities end a little later."""


def take_turn(session: Session, *, plan_id: str, background: bool) -> None:
    """Give a plan that was just stored its turn."""
    plan = session.get_one(PlanRow, plan_id)
    first = BACKGROUND if background else 0
    # Tables, not entities, so that sessions of one tenant compare the turns of all: nothing else of them is seen.
    plans = PlanRow.__table__.c
    is_rival = (
        plans.status.in_(OPEN_STATUSES) & plans.turn.between(first, first + BACKGROUND - 1) & (plans.id != plan_id)
    )
    virtual_time = session.scalar(select(func.min(plans.turn)).where(is_rival))
    own = session.scalar(select(func.max(plans.turn)).where(is_rival, plans.tenant_id == plan.tenant_id))
    start = max(first, virtual_time or 0, own or 0)
    plan.turn = min(start + math.ceil(plan.options["time_limit_s"]), first + BACKGROUND - 1)
    session.flush()


def turn_of(session: Session, *, plan_id: str) -> int:
    """The turn of a plan; 0 where it is gone."""
    return session.scalar(select(PlanRow.turn).where(PlanRow.id == plan_id)) or 0


def open_turns(session: Session) -> dict[str, int]:
    """Turns of the plans that wait or run, next first."""
    query = select(PlanRow.id, PlanRow.turn).where(PlanRow.status.in_(OPEN_STATUSES))
    return {row.id: row.turn for row in session.execute(query.order_by(PlanRow.turn, PlanRow.created_at))}
