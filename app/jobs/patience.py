"""Transactions of jobs that outlast a database which is away for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, TypeVar

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.engine import DATABASE_AWAY, transaction
from app.db.tenancy import for_tenant
from app.jobs.context import JobContext

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0

log = structlog.get_logger(__name__)
T = TypeVar("T")


class ServiceStopping(BaseException):
    """The process ends: the engine must not record an outcome, so that the job starts over elsewhere."""


def for_owner(context: JobContext, table: type[Any], row_id: str) -> JobContext:
    """The context with sessions of the tenant whose row has that id, as patiently as the job itself."""
    tenant = patiently(context, lambda session: session.scalar(select(table.tenant_id).where(table.id == row_id)))
    return replace(context, sessions=for_tenant(context.sessions, tenant or ""))


def patiently(context: JobContext, do: Callable[[Session], T]) -> T:
    """Return the result of ``do``, in one transaction that is tried again for as long as the database is away.

    An answer that took an hour of processor time waits in memory meanwhile.  Raises ``ServiceStopping`` when the
    process is to end.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            with transaction(context.sessions) as session:
                return do(session)
        except DATABASE_AWAY as error:
            log.warning("database_away", reason=str(error)[:300], again_in_s=pause_s)
            if context.stopping.wait(pause_s):
                raise ServiceStopping from error
        pause_s = min(2.0 * pause_s, LONGEST_PAUSE_S)
