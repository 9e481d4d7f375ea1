"""Decisions for the loss of any one of a job's nodes: worked out in advance, kept with the plan it runs by."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.running_tables import PreparedJobRow, RunningJobRow, RunningPlanRow
from app.db.status import PlanKind, RunningPlanStatus
from app.replan_request import ReplanRequest
from app.serialization import jsonable
from app.services.decisions import replan_problems

_APPLIED: Final = (
    select(RunningJobRow.cluster_id, RunningJobRow.id, RunningPlanRow.id, RunningPlanRow.preparations)
    .join(RunningPlanRow, RunningPlanRow.job_id == RunningJobRow.id)
    .where(RunningPlanRow.status == RunningPlanStatus.APPLIED, RunningJobRow.kind == PlanKind.TRAINING)
    .order_by(RunningPlanRow.id)
)


@dataclass(frozen=True, slots=True)
class Preparation:
    """Jobs to prepare, by id, each with its running plan and the generation that is wanted of it."""

    request: ReplanRequest
    snapshot_id: str
    generations: Mapping[str, tuple[str, int]]


def wanted(session: Session) -> dict[str, str]:
    """Clusters with running plans that lack a preparation, each with the id of the job that is to make them.

    The id follows from all running plans of the cluster, so that asking twice is asking once.
    """
    made = _made(session)
    digests: dict[str, Any] = {}
    lacking = set()
    for cluster_id, _job, plan, generation in session.execute(_APPLIED):
        digests.setdefault(cluster_id, hashlib.sha256()).update(f"{plan} {generation}\n".encode())
        if made.get(plan, -1) < generation:
            lacking.add(cluster_id)
    return {cluster: f"prepare-{cluster}-{digests[cluster].hexdigest()[:16]}" for cluster in sorted(lacking)}


def begin(session: Session, *, cluster_id: str, now: datetime) -> Preparation | None:
    """Preparation that a cluster lacks; ``None`` when it lacks none."""
    made = _made(session)
    generations = {
        job: (plan, generation)
        for _cluster, job, plan, generation in session.execute(
            _APPLIED.where(RunningJobRow.cluster_id == cluster_id)
        )
        if made.get(plan, -1) < generation
    }
    if not generations:
        return None
    found = replan_problems.situation(session, cluster_id=cluster_id, replan_id="", now=now)
    request = replan_problems.request_of(session, snapshot=jsonable(found.snapshot), document=found.document)
    return Preparation(request, found.snapshot.id, generations)


def store(session: Session, *, asked: Preparation, job_id: str, document: dict[str, Any]) -> None:
    """Keep what was prepared for a job, in place of an older one."""
    plan, generation = asked.generations[job_id]
    if session.get(RunningPlanRow, plan) is None:
        return
    row = session.get(PreparedJobRow, plan) or PreparedJobRow(running_plan_id=plan)
    row.generation, row.snapshot_id = generation, asked.snapshot_id
    row.document, row.created_at = document, datetime.now(UTC)
    session.add(row)


def _made(session: Session) -> dict[str, int]:
    """The generation of each running plan's preparation."""
    query = select(PreparedJobRow.running_plan_id, PreparedJobRow.generation)
    return {row.running_plan_id: row.generation for row in session.execute(query)}
