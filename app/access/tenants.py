"""Tenants and what each may use up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.access_tables import TenantRow
from app.db.insert import insert_if_absent
from app.db.status import OPEN_STATUSES
from app.db.sweep_tables import SweepRow, SweptFailureRow
from app.db.tables import ClusterRow, MeasurementRow, PlanRow
from app.services.errors import NameTaken, NotFound
from cluster_models.errors import InvalidInput

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Quotas:
    """Limits of what a tenant may use up; ``None`` means none."""

    queued_plans: int | None = None
    solver_s_per_day: float | None = None
    stored_samples: int | None = None

    def or_else(self, other: Quotas) -> Quotas:
        """Quotas as here, and the other's where there are none."""
        pairs = zip(
            (self.queued_plans, self.solver_s_per_day, self.stored_samples),
            (other.queued_plans, other.solver_s_per_day, other.stored_samples),
            strict=True,
        )
        plans, seconds, samples = (mine if mine is not None else theirs for mine, theirs in pairs)
        return Quotas(None if plans is None else int(plans), seconds, None if samples is None else int(samples))


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody whose things nobody else sees."""

    id: str
    quotas: Quotas
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A quota that is used up, and the seconds after which asking again may help."""

    what: str
    again_after_s: int


def create_tenant(session: Session, *, name: str, quotas: Quotas) -> Tenant:
    """Store a tenant; raises ``InvalidInput``, ``NameTaken``."""
    if not _NAME.fullmatch(name):
        problem = "must have 1 to 32 small letters, digits and dashes, with no dash at its ends"
        raise InvalidInput("name", name[:100], problem)
    values = _columns(quotas) | {"created_at": datetime.now(UTC)}
    if not insert_if_absent(session, TenantRow, id=name, **values):
        raise NameTaken("tenant", name, "use another name")
    return get_tenant(session, name=name)


def change_quotas(session: Session, *, name: str, quotas: Quotas) -> Tenant:
    """Set the quotas of a tenant, all of them; raises ``NotFound``."""
    row = _row(session, name)
    for column, value in _columns(quotas).items():
        setattr(row, column, value)
    session.flush()
    return _tenant(row)


def get_tenant(session: Session, *, name: str) -> Tenant:
    """The tenant of that name; raises ``NotFound``."""
    return _tenant(_row(session, name))


def list_tenants(session: Session) -> tuple[Tenant, ...]:
    """Every tenant, by name."""
    return tuple(map(_tenant, session.scalars(select(TenantRow).order_by(TenantRow.id))))


def full_queue(session: Session, quotas: Quotas, *, now: datetime) -> Exceeded | None:
    """The quota that keeps the session's tenant from asking for one more plan."""
    return overfull_queue(session, quotas, more=1) or all_solved(session, quotas, now=now)


def all_solved(session: Session, quotas: Quotas, *, now: datetime) -> Exceeded | None:
    """The quota that keeps the session's tenant from solving more today: seconds of plans and of sweeps."""
    if quotas.solver_s_per_day is None:
        return None
    query = select(PlanRow.started_at, PlanRow.finished_at).where(PlanRow.started_at > now - 2 * _DAY)
    spans = [(max(started, now - _DAY), finished or now) for started, finished in session.execute(query) if started]
    swept, first_swept = session.execute(
        select(func.sum(SweptFailureRow.spent_s), func.min(SweptFailureRow.answered_at))
        .join(SweepRow, SweepRow.id == SweptFailureRow.sweep_id)
        .where(SweptFailureRow.answered_at > now - _DAY)
    ).one()
    used_s = sum(max(0.0, (finished - started).total_seconds()) for started, finished in spans) + (swept or 0.0)
    if used_s < quotas.solver_s_per_day:
        return None
    began = [started for started, finished in spans if finished > started]
    first = min([*began, first_swept] if first_swept else began, default=now)
    told = f"{used_s:.0f} s of solving were used within a day, and {quotas.solver_s_per_day:g} s may be"
    return Exceeded(told, max(60, int((first + _DAY - now).total_seconds())))


def overfull_queue(session: Session, quotas: Quotas, *, more: int = 0) -> Exceeded | None:
    """The quota that the plans of the session's tenant break together with so many ``more``."""
    waiting = session.scalar(select(func.count(PlanRow.id)).where(PlanRow.status.in_(OPEN_STATUSES))) or 0
    if quotas.queued_plans is None or waiting + more <= quotas.queued_plans:
        return None
    return Exceeded(f"{waiting} plans wait or run, and {quotas.queued_plans} may", 60)


def full_store(session: Session, quotas: Quotas) -> Exceeded | None:
    """The quota that keeps the session's tenant from storing more measurements."""
    if quotas.stored_samples is None:
        return None
    query = select(func.count(MeasurementRow.id)).join(ClusterRow, ClusterRow.id == MeasurementRow.cluster_id)
    stored = session.scalar(query) or 0
    if stored < quotas.stored_samples:
        return None
    return Exceeded(f"{stored} measurements are stored, and {quotas.stored_samples} may be", 3600)


def _columns(quotas: Quotas) -> dict[str, float | None]:
    return {
        "max_queued_plans": quotas.queued_plans,
        "max_solver_s_per_day": quotas.solver_s_per_day,
        "max_stored_samples": quotas.stored_samples,
    }


def _row(session: Session, name: str) -> TenantRow:
    row = session.get(TenantRow, name)
    if row is None:
        raise NotFound("tenant", name)
    return row


def _tenant(row: TenantRow) -> Tenant:
    quotas = Quotas(row.max_queued_plans, row.max_solver_s_per_day, row.max_stored_samples)
    return Tenant(row.id, quotas, row.created_at)
