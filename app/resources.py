"""Resources that requests share in one process; the pages and the API reach them through ``service_of``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import structlog
from fastapi import Request
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.db.engine import SessionFactory
from app.db.tenancy import for_tenant
from app.jobs.client import JobClient
from app.metrics import Metrics
from app.services.decisions.safe_answers import answer_safely
from app.services.planning import turns
from app.settings import Settings

TENANT: Final = "tenant"
"""Key in the state of a request: the sender's tenant, put there by access control."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Service:
    """Settings, databases and job queue of a running application.

    ``sessions`` write (use ``app.db.engine.transaction``), ``read_sessions`` only read and never wait.
    """

    settings: Settings
    engine: Engine
    sessions: SessionFactory
    read_sessions: SessionFactory
    jobs: JobClient
    metrics: Metrics
    by_tenant: dict[str, Service] = field(default_factory=dict, repr=False)
    """The service as each tenant sees it, once one has asked: making sessions takes half a millisecond."""

    def of_tenant(self, tenant: str) -> Service:
        """The service as one tenant sees it; an empty name is nobody's, who sees nothing."""
        if tenant not in self.by_tenant:
            sessions, reading = for_tenant(self.sessions, tenant), for_tenant(self.read_sessions, tenant)
            self.by_tenant[tenant] = replace(self, sessions=sessions, read_sessions=reading)
        return self.by_tenant[tenant]

    def queue_plan(self, plan_id: str) -> None:
        """Queue a plan whose row is committed; when the queue is away, a worker's keeper finds the row later."""
        try:
            with self.read_sessions() as session:
                turn = turns.turn_of(session, plan_id=plan_id)
            self.jobs.enqueue(plan_id, turn=turn)
        except SQLAlchemyError as error:
            log.warning("plan_not_queued_yet", plan_id=plan_id, reason=str(error)[:300])

    def answer_failures(self, replan_id: str) -> None:
        """Work out the safe answer of a replan whose reports are committed; a keeper makes up for what breaks."""
        try:
            answer_safely(self.sessions, replan_id=replan_id)
        except Exception:  # the reports are stored, and that is what the sender must know
            log.exception("no_safe_answer", replan_id=replan_id)


def whole_service_of(request: Request) -> Service:
    """The service that got this request, with the rows of all tenants: for access control and the operator."""
    service: Service = request.app.state.service
    return service


def service_of(request: Request) -> Service:
    """The service that got this request, as the tenant sees it who sent that."""
    service, state = whole_service_of(request), request.scope.get("state", {})
    return service.of_tenant(state[TENANT]) if TENANT in state else service
