"""Jobs that run on a cluster, and the plans that they ran by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.db.status import JobStanding, PlanKind, RunningPlanStatus
from app.presentation.figures import count, plural
from app.presentation.job_policies import policy_facts
from app.presentation.recovery import STATES, entity_words, moment, rate_words, tokens_per_s
from app.services.decisions.replans import ReplanRecord
from app.services.running.running_jobs import JobRecord
from app.services.running.running_plans import RunningPlanRecord

_STANDINGS: Final = {
    JobStanding.IDLE: ("not started", "warn"),
    JobStanding.RUNNING: ("running", "good"),
    JobStanding.WAITING: ("waiting for lost parts", "warn"),
    JobStanding.PAUSED: ("paused", "warn"),
    JobStanding.DOWN: ("down: parts of it failed", "bad"),
}
_STATUSES: Final = {
    RunningPlanStatus.PROPOSED: ("proposed", "busy"),
    RunningPlanStatus.APPROVED: ("approved, GPUs are held", "busy"),
    RunningPlanStatus.APPLIED: ("the job runs by it", "good"),
    RunningPlanStatus.SUPERSEDED: ("replaced", ""),
    RunningPlanStatus.CANCELLED: ("called off", ""),
}
_NEXT: Final = {
    RunningPlanStatus.PROPOSED: "Approve it to hold its GPUs for this job, then start the job.",
    RunningPlanStatus.APPROVED: "Start the job with it, then say here that it runs.",
}


_PAUSED: Final = {
    PlanKind.TRAINING: "It ended at its last checkpoint and holds no GPU. It comes back when there is room.",
    PlanKind.SERVING: "It answers nothing and holds no GPU. It comes back when there is room.",
}
_HIT: Final = "A failure touches it: what becomes of it is decided together with the other jobs."


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list, and the head of its own page."""

    name: str
    cluster: str
    standing: str
    mood: str
    model: str
    degrees: str
    gpus: str
    rate: str
    weight: str


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A plan of a job; ``can`` are the steps that may be taken with it: value and words of each button."""

    id: str
    plan_id: str | None
    replan_id: str | None
    status: str
    mood: str
    model: str
    degrees: str
    size: str
    rate: str
    history: str
    can: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class JobPage:
    """A job with the one thing to do next, facts, and its plans, newest first.

    ``decision``: the open replan that is about it, if one is.
    """

    line: JobLine
    next: str
    decision: str | None
    waiting: PlanRow | None
    facts: tuple[tuple[str, str], ...]
    plans: tuple[PlanRow, ...]


def job_line(job: JobRecord) -> JobLine:
    """A job by its name, how it stands and what it runs by."""
    standing, mood = _STANDINGS[job.standing]
    plan = job.plan.summary if job.plan else None
    return JobLine(
        name=job.name,
        cluster=job.cluster_name,
        standing=standing,
        mood=mood,
        model=plan.model if plan else "",
        degrees=plan.degrees if plan else "",
        gpus=count(job.gpus_held),
        rate="slower than planned" if job.tokens_per_s is None else tokens_per_s(job.tokens_per_s),
        weight=f"{job.weight:g}",
    )


def job_page(
    job: JobRecord, plans: Sequence[RunningPlanRecord], open_replan: ReplanRecord | None = None
) -> JobPage:
    """The page of a job: a failure comes before all else, then a plan that waits for a step."""
    decision = _decision_about(job, open_replan)
    rows = tuple(plan_row(plan) for plan in plans)
    waiting = next(
        ((row, plan.status) for row, plan in zip(rows, plans, strict=True) if row.can and plan.status in _NEXT),
        None,
    )
    return JobPage(
        line=job_line(job),
        next=_HIT if decision else _next(job) if waiting is None else _NEXT[waiting[1]],
        decision=decision,
        waiting=None if waiting is None else waiting[0],
        facts=_facts(job),
        plans=rows,
    )


def _decision_about(job: JobRecord, open_replan: ReplanRecord | None) -> str | None:
    if open_replan is None or open_replan.summary is None:
        return None
    summary = open_replan.summary
    decided = {each.job_id for each in summary.jobs} | {each.job_id for each in summary.serving}
    return open_replan.id if job.id in decided else None


def plan_row(plan: RunningPlanRecord) -> PlanRow:
    """A plan of a job with what can be done with it."""
    status, mood = _STATUSES[plan.status]
    history = [("proposed", plan.created_at), ("approved", plan.approved_at), ("started", plan.applied_at)]
    history.append(("ended", plan.ended_at))
    return PlanRow(
        id=plan.id,
        plan_id=plan.plan_id,
        replan_id=plan.replan_id,
        status=status,
        mood=mood,
        model=plan.summary.model,
        degrees=plan.summary.degrees,
        size=f"{plural(plan.summary.gpus, 'GPU')} of {plural(plan.summary.hosts, 'node')}",
        rate=rate_words(plan.summary),
        history="; ".join(f"{words} {moment(at)}" for words, at in history if at is not None),
        can=_can(plan),
    )


def _can(plan: RunningPlanRecord) -> tuple[tuple[str, str], ...]:
    """The steps that may be taken; those of a replan's plans are taken on its own page."""
    if plan.status is RunningPlanStatus.PROPOSED:
        return ("approve", "Approve: hold its GPUs"), ("cancel", "Call it off")
    if plan.status is RunningPlanStatus.APPROVED and plan.replan_id is None:
        return ("apply", "The job runs by it now"), ("cancel", "Call it off")
    if plan.status is RunningPlanStatus.APPLIED:
        return (("cancel", "The job has ended: free its GPUs"),)
    return ()


def _next(job: JobRecord) -> str:
    told = {
        JobStanding.IDLE: "It has no plan. Make one, and run it under this job's name.",
        JobStanding.RUNNING: "Nothing to do: it runs.",
        JobStanding.WAITING: "It stands still; a new decision follows by itself when the lost parts are back.",
        JobStanding.PAUSED: _PAUSED[job.kind],
        JobStanding.DOWN: "Parts of it failed and no decision about it is open: ask for one on the failures page.",
    }
    return told[job.standing]


def _facts(job: JobRecord) -> tuple[tuple[str, str], ...]:
    return (
        ("cluster", job.cluster_name),
        ("GPUs held", count(job.gpus_held)),
        *(("not well", f"{entity_words(each.entity)} {STATES[each.state]}") for each in job.trouble),
        ("weight", f"{job.weight:g}"),
        *policy_facts(job),
        ("registered", moment(job.created_at)),
    )
