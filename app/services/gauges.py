"""Gauges of the service's health, read from the database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.replan_tables import ReplanRow
from app.db.status import OPEN_REPLANS, DeliveryStatus, PlanStatus
from app.db.tables import PlanRow, WorkerRow
from app.db.webhook_tables import WebhookDeliveryRow
from app.metrics import Metrics
from app.services import workers
from app.services.feedback.measured_runs import RunFilter, newest_runs
from app.services.planning import plans

WORKER_SEEN_WITHIN: Final = timedelta(seconds=30)
RUNS: Final = 100
RUNS_OF: Final = timedelta(days=30)


def take_gauges(session: Session, metrics: Metrics) -> None:
    """Set every gauge that is counted in the database, of all tenants."""
    for status, count in plans.count_by_status(session).items():
        metrics.plans.labels(status).set(count)
    asked = session.scalar(select(func.min(PlanRow.created_at)).where(PlanRow.status == PlanStatus.QUEUED))
    metrics.oldest_queued_seconds.set(0 if asked is None else (datetime.now(UTC) - asked).total_seconds())
    heard = WorkerRow.beat_at >= workers.clock(session) - WORKER_SEEN_WITHIN
    metrics.workers.set(session.scalar(select(func.count()).select_from(WorkerRow).where(heard)) or 0)
    _count_decisions(session, metrics)
    waiting = WebhookDeliveryRow.status == DeliveryStatus.PENDING
    metrics.messages_waiting.set(
        session.scalar(select(func.count()).select_from(WebhookDeliveryRow).where(waiting)) or 0
    )
    _compare_runs(session, metrics)


def _count_decisions(session: Session, metrics: Metrics) -> None:
    query = select(ReplanRow.status, func.count()).where(ReplanRow.status.in_(OPEN_REPLANS))
    found = {row[0]: row[1] for row in session.execute(query.group_by(ReplanRow.status))}
    for status in OPEN_REPLANS:
        metrics.replans_open.labels(status).set(found.get(status, 0))


def _compare_runs(session: Session, metrics: Metrics) -> None:
    """Measured beside predicted steps; without a run the ratio is not a number, which no alert takes for good."""
    since = datetime.now(UTC) - RUNS_OF
    ratios = [run.ratio for run in newest_runs(session, wanted=RunFilter(), most=RUNS) if run.ended_at >= since]
    metrics.measured_runs.set(len(ratios))
    metrics.step_ratio.set(median(ratios) if ratios else float("nan"))
    metrics.step_error.set(median(abs(ratio - 1) for ratio in ratios) if ratios else float("nan"))
