"""Replans that the clock opens: parts are well again that jobs wait for, or have to be left soon."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import groupby
from typing import Final

from sqlalchemy import and_, exists, or_, select
from sqlalchemy.orm import Session

from app.db.replan_tables import HealthEventRow, ReplanRow
from app.db.running_tables import RunningJobRow, RunningPlanRow
from app.db.status import JobStanding
from app.services.clusters import clusters
from app.services.decisions import replan_rows, replan_settings, reports
from app.services.health import health_events
from app.services.health.affected_holders import standing_trouble
from app.services.running import occupancy
from app.services.running.job_plans import JobPlan, job_plans
from cluster_models.health.events import Entity, EntityKind, HealthState
from cluster_models.wording import named

_LATE: Final = timedelta(hours=1)
"""Time after a part had to be left beyond which nobody is woken for it."""


def wake_waiting(session: Session, *, now: datetime) -> list[str]:
    """Open a replan of every cluster where parts are well again that jobs wait for, could start again or grow on.

    Once for each recovery; returns their ids.
    """
    replanned = exists().where(RunningPlanRow.job_id == RunningJobRow.id, RunningPlanRow.replan_id.is_not(None))
    query = select(RunningJobRow.cluster_id).where(
        or_(
            RunningJobRow.standing.in_((JobStanding.WAITING, JobStanding.PAUSED)),
            and_(RunningJobRow.standing == JobStanding.RUNNING, replanned),
        )
    )
    opened = []
    for cluster_id in sorted(set(session.scalars(query))):
        clusters.lock(session, reference=cluster_id, expected_version=None)
        if replan_rows.open_row(session, cluster_id) is not None or _asked_since_quiet(session, cluster_id, now):
            continue
        still = reports.touched_jobs(session, cluster_id, reports.cluster_conditions(session, cluster_id, now))
        jobs = job_plans(session, cluster_id=cluster_id).values()
        ready = [each.job.name for each in jobs if _may_gain(each, is_touched=each.job.id in still)]
        if ready:
            jobs_named = named(ready, reports.MOST_NAMED)
            reason = f"Parts are well again that {jobs_named} stood still for, or ran on fewer GPUs without."
            opened.append(reports.open_or_join(session, cluster_id, reason=reason, window_s=0.0, now=now))
    return opened


def wake_deadlines(session: Session, *, now: datetime) -> list[str]:
    """Open a replan of every cluster where a job has to leave a part at a stated time that has come near.

    Once for each such report; returns their ids.
    """
    row = HealthEventRow
    query = (
        select(row.cluster_id, row.id, row.kind, row.node, row.part, row.leave_by)
        .where(row.leave_by > now - _LATE, row.known.is_(True), row.replan_id.is_(None))
        .order_by(row.cluster_id, row.id)
    )
    opened = []
    for cluster_id, group in groupby(session.execute(query).all(), key=lambda each: each.cluster_id):
        settings, rows = replan_settings.settings_of(session, cluster_id=cluster_id), list(group)
        if min(each.leave_by for each in rows) - timedelta(seconds=settings.drain_lead_s) > now:
            continue
        clusters.lock(session, reference=cluster_id, expected_version=None)
        trouble = standing_trouble(reports.cluster_conditions(session, cluster_id, now))
        due = [each for each in trouble if each.leave_by is not None]
        if not (hit := reports.touched_jobs(session, cluster_id, due)):
            continue
        held = occupancy.staying_gpus(session, cluster_id=cluster_id)
        cluster = clusters.get_cluster(session, reference=cluster_id).cluster
        reason = reports.reason_of(session, due, hit, held, cluster)
        replan_id = reports.open_or_join(session, cluster_id, reason=reason, window_s=settings.window_s, now=now)
        parts = {each.entity for each in due}
        ids = [each.id for each in rows if Entity(EntityKind(each.kind), each.node, each.part) in parts]
        health_events.assign(session, event_ids=ids, replan_id=replan_id)
        opened.append(replan_id)
    return opened


def _may_gain(found: JobPlan, *, is_touched: bool) -> bool:
    """Whether a job may do more work now that parts are well again."""
    if found.job.standing == JobStanding.WAITING:
        return not is_touched
    return found.is_paused or found.gpus < (found.wanted_gpus or 0)


def _asked_since_quiet(session: Session, cluster_id: str, now: datetime) -> bool:
    """Whether a replan was opened since a recovery was last believed, or none ever was."""
    hysteresis = timedelta(seconds=replan_settings.settings_of(session, cluster_id=cluster_id).hysteresis_s)
    events = health_events.read_known(session, cluster_id=cluster_id)
    believed = [
        moment
        for event in events
        if event.state is HealthState.RECOVERED and (moment := event.occurred_at + hysteresis) <= now
    ]
    if not believed:
        return True
    query = select(exists().where(ReplanRow.cluster_id == cluster_id, ReplanRow.created_at >= max(believed)))
    return bool(session.scalar(query))
