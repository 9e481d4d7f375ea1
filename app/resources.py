"""Resources that requests share in one process; the pages and the API reach them through ``service_of``."""

from __future__ import annotations

from dataclasses import dataclass

import structlog
from fastapi import Request
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from app.db.engine import SessionFactory
from app.jobs.client import JobClient
from app.metrics import Metrics
from app.services.safe_answers import answer_safely
from app.settings import Settings

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

    def queue_plan(self, plan_id: str) -> None:
        """Queue a plan whose row is committed; when the queue is away, a worker's keeper finds the row later."""
        try:
            self.jobs.enqueue(plan_id)
        except SQLAlchemyError as error:
            log.warning("plan_not_queued_yet", plan_id=plan_id, reason=str(error)[:300])

    def answer_failures(self, replan_id: str) -> None:
        """Work out the safe answer of a replan whose reports are committed; a keeper makes up for what breaks."""
        try:
            answer_safely(self.sessions, replan_id=replan_id)
        except Exception:  # the reports are stored, and that is what the sender must know
            log.exception("no_safe_answer", replan_id=replan_id)


def service_of(request: Request) -> Service:
    """The service of the application that got this request."""
    service: Service = request.app.state.service
    return service
