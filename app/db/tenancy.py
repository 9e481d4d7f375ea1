"""Tenants in the database: whose a row is, and sessions that see and make rows of one tenant only.

A session is bound to a tenant by its engine (execution option ``tenant``).  Every ORM statement of such a session
is narrowed to the rows of the tenant here, and every row that it makes is stamped: services know nothing of that.
Sessions without a tenant see all rows, and can make none that needs an owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import String, event, select
from sqlalchemy.engine.interfaces import ExecutionContext
from sqlalchemy.orm import Mapped, ORMExecuteState, Session, mapped_column, sessionmaker, with_loader_criteria

LONGEST_TENANT: Final = 32
_OPTION: Final = "tenant"


class OwnerMissing(RuntimeError):
    """A session without a tenant made a row that needs an owner."""


def stamp(context: ExecutionContext) -> str:
    """The tenant whose session makes a row; raises ``OwnerMissing``."""
    tenant = context.execution_options.get(_OPTION)
    if not tenant:
        raise OwnerMissing("rows of tenants are made in sessions of a tenant")
    return str(tenant)


class Owned:
    """A row of one tenant.

    Rows that can be reached through such a row only (measurements of a cluster) have no owner of their own.
    """

    tenant_id: Mapped[str] = mapped_column(String(LONGEST_TENANT), default=stamp)


class TenantSession(Session):
    """A session that sees the rows of its tenant only."""


def tenant_of(session: Session) -> str | None:
    """The tenant that a session is bound to; ``None`` means all."""
    tenant: str | None = session.get_bind().get_execution_options().get(_OPTION)
    return tenant


def for_tenant(sessions: sessionmaker[Session], tenant: str | None) -> sessionmaker[Session]:
    """The same sessions, bound to a tenant; ``None`` means all, and an empty name nobody."""
    bound = {**sessions.kw, "bind": sessions.kw["bind"].execution_options(**{_OPTION: tenant})}
    return sessionmaker(class_=TenantSession, **bound)


def for_owner(sessions: sessionmaker[Session], table: type[Any], row_id: str) -> sessionmaker[Session]:
    """The same sessions, bound to the tenant of the row with an id; to nobody where there is no such row."""
    with sessions() as session:
        tenant = session.scalar(select(table.tenant_id).where(table.id == row_id))
    return for_tenant(sessions, tenant or "")


def for_each_owner(sessions: sessionmaker[Session], table: type[Any]) -> Iterator[sessionmaker[Session]]:
    """The same sessions, bound in turn to each tenant that has rows in a table."""
    with sessions() as session:
        tenants = session.scalars(select(table.tenant_id).distinct().order_by(table.tenant_id)).all()
    return (for_tenant(sessions, tenant) for tenant in tenants)


@event.listens_for(TenantSession, "do_orm_execute")
def _only_own_rows(state: ORMExecuteState) -> None:
    """Narrow every statement to rows of the session's tenant, wherever an owned table stands in it."""
    tenant = tenant_of(state.session)
    if tenant is None or state.is_column_load or state.is_relationship_load:
        return
    state.statement = state.statement.options(
        with_loader_criteria(Owned, lambda cls: cls.tenant_id == tenant, include_aliases=True)
    )
