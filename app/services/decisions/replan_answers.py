"""The answers of a replan: kept, summed up, and approved (their GPUs claimed)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy.orm import Session

from app.db.replan_tables import ReplanRow
from app.db.running_tables import RunningPlanRow
from app.db.status import ReplanStatus, ReplanStep, RunningPlanStatus
from app.serialization import jsonable, load
from app.services.decisions import replan_rows, replan_steps
from app.services.decisions.replan_steps import SERVICE, Actor
from app.services.errors import GpusTaken, NotFound, WrongStatus
from app.services.running import occupancy, running_plans
from app.services.running.job_plans import job_plans
from app.services.running.occupancy import Gpus
from app.services.running.plan_contents import AnyPlan, gpus_of, kind_of, load_plan
from cluster_models.jobs.recovery import BatchDecision, JobDecision, RecoveryAction
from cluster_models.jobs.serving import ServingAction, ServingDecision
from cluster_models.remarks import Remark
from cluster_models.training.plan import Plan


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One job's part of a decision: throughput in tokens per second, times in seconds, GPU-hours low and high."""

    job_id: str
    job: str
    action: RecoveryAction
    degrees: str
    """As text; empty where the job stands still."""
    moved_ranks: int
    moved_bytes: float
    downtime_low_s: float
    downtime_high_s: float
    tokens_per_s_before: float
    tokens_per_s_after: float
    lost_gpu_hours_low: float
    lost_gpu_hours_high: float
    causes: tuple[Remark, ...]
    reasons: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class ServingSummary:
    """One deployment's part of a decision: requests a second to all its models, seconds until replicas answer."""

    job_id: str
    job: str
    action: ServingAction
    gpus: int
    lost: int
    """Replicas that lost a GPU."""
    started: int
    """Replicas that start."""
    start_low_s: float
    start_high_s: float
    requests_per_s_before: float
    requests_per_s_after: float
    is_to_be_done: bool
    """Whether somebody has to act."""


@dataclass(frozen=True, slots=True)
class DecisionSummary:
    """A decision without plans and moves.  ``fallback`` marks the safe answer."""

    jobs: tuple[JobSummary, ...]
    untouched: int
    spares_used: tuple[str, ...]
    spares_left: tuple[str, ...]
    quarantine: tuple[str, ...]
    objective: float
    objective_if_waiting: float
    gap: float
    stopped_by: str
    fallback: bool
    serving: tuple[ServingSummary, ...] = ()


def document_of(decision: BatchDecision, base: Mapping[str, str]) -> dict[str, Any]:
    """A decision as a replan keeps it, with the running plans of the jobs that it starts from."""
    return {"base": dict(base), "decision": jsonable(decision)}


def summary_of(decision: BatchDecision) -> DecisionSummary:
    """A decision without plans and moves."""
    return DecisionSummary(
        jobs=tuple(_job_summary(job) for job in decision.jobs),
        untouched=len(decision.untouched),
        spares_used=decision.spares_used,
        spares_left=decision.spares_left,
        quarantine=tuple(each.node for each in decision.quarantine),
        objective=decision.objective,
        objective_if_waiting=decision.objective_if_waiting,
        gap=decision.gap,
        stopped_by=decision.stopped_by,
        fallback=decision.fallback,
        serving=tuple(_serving_summary(made) for made in decision.serving),
    )


def approved_answer(row: ReplanRow) -> BatchDecision:
    """The answer that was approved."""
    kept = kept_answer(row, safe=row.chosen == "safe")
    assert kept is not None, "an answer was approved"
    return load(BatchDecision, kept["decision"])


def kept_answer(row: ReplanRow, *, safe: bool) -> dict[str, Any] | None:
    """An answer as kept; for the solver's the safe one where it found none and is done."""
    if safe:
        return row.safe
    if row.decision is None and row.status not in (ReplanStatus.COLLECTING, ReplanStatus.SOLVING):
        return row.safe
    return row.decision


def approve(session: Session, *, row: ReplanRow, safe: bool, actor: Actor) -> None:
    """Claim the GPUs of an answer for its jobs and store their plans; the cluster's row must be locked."""
    allowed = [ReplanStatus.PROPOSED, *([ReplanStatus.COLLECTING, ReplanStatus.SOLVING] if safe else [])]
    kept = kept_answer(row, safe=safe)
    if row.status not in allowed or kept is None:
        told = "wait for its answer" if row.status in allowed else f"this needs one that is {' or '.join(allowed)}"
        raise WrongStatus("replan", row.id, row.status, told)
    if safe and row.safe_revision != row.revision:
        raise WrongStatus("replan", row.id, "about to take in a later report or change", "try again in a second")
    decision = load(BatchDecision, kept["decision"])
    running = _running(session, row, kept["base"], decision)
    # What an overtaken replan had claimed is decided anew.
    replan_rows.undo(session, replan_id=row.id)
    holdings = {made.job_id: _holdings(made, running[made.job_id]) for made in made_of(decision)}
    occupancy.claim(session, cluster_id=row.cluster_id, claim_id=row.id, holdings=holdings)
    for made in made_of(decision):
        now_runs = running[made.job_id]
        if made.plan is not None and not _same(made.plan, now_runs):
            running_plans.add_row(
                session,
                job_id=made.job_id,
                plan=made.plan,
                fitted=now_runs.fitted,
                replan_id=row.id,
                status=RunningPlanStatus.APPROVED,
            )
    session.flush()
    replan_rows.demand(
        session,
        row,
        allowed,
        status=ReplanStatus.APPROVED,
        chosen="safe" if safe else "decision",
        approved_at=datetime.now(UTC),
        summary=jsonable(summary_of(decision)),
    )
    replan_steps.take(session, row=row, step=ReplanStep.APPROVED, actor=actor)


def approve_if_possible(session: Session, *, row: ReplanRow) -> str:
    """Approve the solver's answer as ``approve`` does, or leave all as it was and say why it cannot be."""
    try:
        with session.begin_nested():
            approve(session, row=row, safe=False, actor=SERVICE)
    except (GpusTaken, WrongStatus) as refusal:
        session.expire_all()
        return str(refusal)
    return ""


def _running(
    session: Session, row: ReplanRow, base: Mapping[str, str], decision: BatchDecision
) -> dict[str, RunningPlanRow]:
    """Running plans of the decided jobs; raises ``WrongStatus`` where the decision starts from others."""
    found = job_plans(session, cluster_id=row.cluster_id)
    now = {job_id: each.running_plan_id for job_id, each in found.items()}
    changed = sorted(made.job_name for made in made_of(decision) if now.get(made.job_id) != base.get(made.job_id))
    if changed:
        raise WrongStatus(
            "replan", row.id, "out of date", f"{', '.join(changed)} changed since; ask for a new replan"
        )
    return {made.job_id: session.get_one(RunningPlanRow, now[made.job_id]) for made in made_of(decision)}


def made_of(decision: BatchDecision) -> tuple[JobDecision | ServingDecision, ...]:
    """Summaries of the jobs that are decided on, training jobs first."""
    return (*decision.jobs, *decision.serving)


def decided_for(decision: BatchDecision, job: str) -> JobDecision | ServingDecision:
    """The decision on one job, by name or id; raises ``NotFound``."""
    for made in made_of(decision):
        if job in (made.job_name, made.job_id):
            return made
    raise NotFound("job in this replan", job)


def _holdings(made: JobDecision | ServingDecision, running: RunningPlanRow) -> Gpus:
    """The GPUs that a job is to hold: where it waits all it had, for the lost ones are what it waits for.

    One that was paused and gets no plan holds nothing.
    """
    if isinstance(made, ServingDecision):
        return made.held
    if made.action is RecoveryAction.PAUSE or (made.plan is None and running.status != RunningPlanStatus.APPLIED):
        return frozenset()
    return gpus_of(load(Plan, running.plan) if made.plan is None else made.plan)


def _same(plan: AnyPlan, running: RunningPlanRow) -> bool:
    """Whether a job runs by a plan already; one that is paused does not."""
    if running.status != RunningPlanStatus.APPLIED:
        return False
    old = load_plan(kind_of(plan), running.plan)
    if not (isinstance(plan, Plan) and isinstance(old, Plan)):
        return plan == old
    return (plan.placement, plan.configuration) == (old.placement, old.configuration)


def _serving_summary(made: ServingDecision) -> ServingSummary:
    return ServingSummary(
        job_id=made.job_id,
        job=made.job_name,
        action=made.action,
        gpus=len(made.held),
        lost=len(made.lost),
        started=len(made.started),
        start_low_s=made.start.low_s,
        start_high_s=made.start.high_s,
        requests_per_s_before=math.fsum(load.before_per_s for load in made.loads),
        requests_per_s_after=math.fsum(load.after_per_s for load in made.loads),
        is_to_be_done=made.is_to_be_done,
    )


def _job_summary(made: JobDecision) -> JobSummary:
    low, high = made.lost_gpu_hours
    return JobSummary(
        job_id=made.job_id,
        job=made.job_name,
        action=made.action,
        degrees="" if made.plan is None else str(made.plan.configuration.degrees),
        moved_ranks=len(made.migration.moved),
        moved_bytes=made.migration.bytes.total,
        downtime_low_s=made.migration.downtime.low_s,
        downtime_high_s=made.migration.downtime.high_s,
        tokens_per_s_before=made.tokens_per_s_before,
        tokens_per_s_after=made.tokens_per_s_after,
        lost_gpu_hours_low=low,
        lost_gpu_hours_high=high,
        causes=made.causes,
        reasons=made.reasons,
    )
