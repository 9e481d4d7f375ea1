"""A stored cluster with jobs on it, reports about its nodes, and decisions made by hand."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.api.webhook_messages import Message
from app.db.running_tables import OccupiedGpuRow
from app.documents.cluster import ClusterDocument
from app.events.reading import ToldEvent
from app.serialization import jsonable
from app.services.clusters import clusters
from app.services.decisions import replan_solves, reports
from app.services.decisions.reports import ReportAnswer
from app.services.running import occupancy, running_jobs
from app.services.running.running_jobs import JobRecord
from app.services.running.running_plans import PlanSource
from cluster_models.health.events import Entity, EntityKind, HealthEvent, HealthState
from cluster_models.jobs.recovery import BatchDecision, JobDecision, Migration, RecoveryAction
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.remarks import remark
from cluster_models.training.plan import Plan, StopReason
from tests.cluster_models.clusters import cluster_of, host
from tests.plans import small_plan

CLUSTER = "eight"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def add_cluster(session: Session, *, nodes: int = 8) -> str:
    """A cluster of nodes ``n0``, ``n1``, ... of four GPUs, four to a leaf; returns its id."""
    hosts = [host(f"n{index}", leaf=f"leaf-{index // 4}", gpus=4, cards=4) for index in range(nodes)]
    document = ClusterDocument.from_cluster(replace(cluster_of(hosts), name=CLUSTER), ())
    return clusters.create_cluster(session, document=document).id


def plan_on(first: str, second: str) -> Plan:
    """The small plan, tensor 2 x pipeline 2 x data 2, on two nodes of four GPUs."""
    plan = small_plan()
    hosts = (first, second)
    ranks = tuple(replace(place, node=hosts[place.rank // 4]) for place in plan.placement.ranks)
    return replace(plan, placement=replace(plan.placement, hosts=hosts, ranks=ranks))


def one_replica(plan: Plan) -> Plan:
    """The first of the two replicas of ``plan``, on the one node that holds it."""
    degrees = replace(plan.configuration.degrees, data=1)
    placement = replace(plan.placement, hosts=plan.placement.hosts[:1], ranks=plan.placement.ranks[:4])
    return replace(plan, configuration=replace(plan.configuration, degrees=degrees), placement=placement)


def add_job(
    session: Session,
    name: str,
    first: str,
    second: str,
    *,
    weight: float = 1.0,
    recovery: RecoveryPolicy | None = None,
) -> JobRecord:
    """A job that runs on two nodes."""
    source = PlanSource(plan=plan_on(first, second))
    return running_jobs.register_job(
        session, reference=CLUSTER, name=name, source=source, weight=weight, recovery=recovery, applied=True
    )


def told(
    node: str,
    state: HealthState = HealthState.FAILED,
    *,
    at_s: float = 0.0,
    number: str | None = None,
    kind: EntityKind = EntityKind.NODE,
    part: str = "",
    known: bool = True,
    source: str = "watch",
) -> ToldEvent:
    """A report of something that happened ``at_s`` seconds after ``START``."""
    event = HealthEvent(
        entity=Entity(kind, node, part),
        state=state,
        occurred_at=START + timedelta(seconds=at_s),
        source=source,
        source_id=number or uuid.uuid4().hex,
    )
    return ToldEvent(event, node, known)


def report(session: Session, *events: ToldEvent, at_s: float = 0.0) -> ReportAnswer:
    """Reports that come in ``at_s`` seconds after ``START``."""
    return reports.report(session, reference=CLUSTER, told=events, now=START + timedelta(seconds=at_s))


WORTH_MORE_FLOP: Final = 1e30
"""Than any safe answer, which would be proposed instead."""


def decided(
    jobs: Mapping[JobRecord, tuple[RecoveryAction, Plan | None]], *, untouched: Sequence[JobRecord] = ()
) -> BatchDecision:
    """A decision with nothing but actions and plans in it."""
    return BatchDecision(
        jobs=tuple(
            JobDecision(
                job_id=job.id,
                job_name=job.name,
                action=action,
                plan=plan,
                migration=Migration(),
                tokens_per_s_before=1.0,
                tokens_per_s_after=0.0 if plan is None else 1.0,
                limited_by=remark("limit_gpus"),
                value_flop=1.0,
                lost_gpu_hours=(0.0, 1.0),
                survives=(),
                causes=(),
                reasons=(remark("nothing_lost"),),
            )
            for job, (action, plan) in jobs.items()
        ),
        untouched=tuple(job.id for job in untouched),
        spares_before=(),
        spares_used=(),
        spares_left=(),
        quarantine=(),
        objective=WORTH_MORE_FLOP,
        objective_if_waiting=0.0,
        bound=WORTH_MORE_FLOP,
        gap=0.0,
        stopped_by=StopReason.PROVEN,
        fallback=False,
        solver="by hand",
        snapshot_id="s",
        horizon_s=3600.0,
    )


def solved(session: Session, replan_id: str, decision: BatchDecision, *, at_s: float = 61.0) -> None:
    """Let a replan's window end and this be what the solver answers."""
    now = START + timedelta(seconds=at_s)
    assert replan_solves.begin_attempt(session, replan_id=replan_id, now=now) is not None
    assert replan_solves.finish(session, replan_id=replan_id, decision=jsonable(decision))


def nodes_held(session: Session, job: JobRecord) -> set[str]:
    """The nodes that a job holds, those it is about to leave left out."""
    held = occupancy.staying_gpus(session, cluster_id=job.cluster_id).get(job.id, frozenset())
    return {node for node, _gpu in held}


def occupied(session: Session) -> set[tuple[str, int, str, bool, bool]]:
    """Every GPU that somebody holds: node, number, job, whether claimed, whether on its way out."""
    return {
        (row.node, row.gpu, row.job_id, row.claim_id is not None, row.releasing)
        for row in session.scalars(select(OccupiedGpuRow))
    }


def failed_job(session: Session) -> tuple[str, JobRecord, JobRecord]:
    """Jobs ``a`` on n0, n1 and ``b`` on n2, n3; a spare n7; n0 has failed: its replan, and both jobs."""
    add_cluster(session)
    jobs = add_job(session, "a", "n0", "n1"), add_job(session, "b", "n2", "n3")
    occupancy.replace_spares(session, reference=CLUSTER, nodes=["n7"])
    replan_id = report(session, told("n0")).replan_id
    assert replan_id is not None
    return replan_id, *jobs


def swapped_job(session: Session) -> tuple[str, JobRecord, JobRecord]:
    """The same once the solver has answered that ``a`` takes the spare."""
    replan_id, a, b = failed_job(session)
    solved(session, replan_id, decided({a: (RecoveryAction.SWAP, plan_on("n7", "n1"))}, untouched=[b]))
    return replan_id, a, b


def as_described(body: Any) -> None:
    """Raise ``ValidationError`` where the message to a webhook is not as the API's description says."""
    TypeAdapter(Message).validate_python(body)
