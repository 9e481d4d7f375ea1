"""An approved replan as it is carried out: begun, one job after the other, or all at once.

A job that is completed runs as decided from then on, whatever becomes of the rest: a later decision starts from
there, and calling the replan off gives back what the other jobs were to have.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.replan_tables import ReplanRow
from app.db.running_tables import RunningJobRow, RunningPlanRow
from app.db.status import OPEN_REPLANS, JobStanding, ReplanStatus, ReplanStep, RunningPlanStatus
from app.services.decisions import replan_answers, replan_rows, replan_steps, reports
from app.services.decisions.replan_steps import Actor
from app.services.errors import NotFound, WrongStatus
from app.services.running import occupancy, running_plans
from app.services.running.job_plans import job_plans
from app.services.running.running_plans import RunningPlanRecord
from cluster_models.jobs.recovery import BatchDecision, JobDecision, RecoveryAction
from cluster_models.jobs.serving import ServingDecision

APPROVED: Final = (ReplanStatus.APPROVED, ReplanStatus.APPLYING)
TO_BE_DONE: Final = frozenset(RecoveryAction) - {RecoveryAction.NONE, RecoveryAction.WAIT}
"""Actions that somebody has to carry out; a job that runs on, or stands still as it does, needs nobody."""


def begin(session: Session, *, row: ReplanRow, actor: Actor) -> None:
    """Note that an approved replan is being carried out; nothing happens where that is known."""
    if row.status != ReplanStatus.APPLYING:
        replan_rows.demand(session, row, [ReplanStatus.APPROVED], status=ReplanStatus.APPLYING)
        replan_steps.take(session, row=row, step=ReplanStep.STARTED, actor=actor)


def complete_all(session: Session, *, row: ReplanRow, actor: Actor) -> None:
    """Every job runs, or stands still, as decided; the cluster's row must be locked."""
    if row.status == ReplanStatus.APPLIED:
        return
    if row.status == ReplanStatus.SUPERSEDED:
        told = f"{row.superseded_by} overtook it; complete one by one the jobs that were started as decided here"
        raise WrongStatus("replan", row.id, row.status, told)
    replan_rows.demand(session, row, APPROVED, status=ReplanStatus.APPLIED, finished_at=datetime.now(UTC))
    decision = replan_answers.approved_answer(row)
    done = replan_steps.completed_jobs(session, replan_id=row.id)
    for made in replan_answers.made_of(decision):
        if made.job_id not in done:
            _carry_out(session, row, made, claim_id=row.id)
    _wake_untouched(session, row, decision)
    replan_steps.take(session, row=row, step=ReplanStep.APPLIED, actor=actor)


def complete_job(session: Session, *, row: ReplanRow, job: str, actor: Actor) -> None:
    """One job, by name or id, runs or stands still as decided; with the last of them the replan is applied.

    Jobs whose GPUs it took over run no more: they count as paused until they are completed themselves.  A replan
    that a later failure overtook may still be told of a job that was started before anybody knew: the open one
    then starts from there.  The cluster's row must be locked.  Raises ``NotFound`` of the job, ``WrongStatus``.
    """
    if replan_steps.is_completed(session, replan_id=row.id, job_id=_known_id(session, row, job)):
        return
    if row.status == ReplanStatus.SUPERSEDED:
        _complete_late(session, row, job, actor)
        return
    if row.status not in APPROVED:
        raise WrongStatus("replan", row.id, row.status, f"this needs one that is {' or '.join(APPROVED)}")
    begin(session, row=row, actor=actor)
    decision = replan_answers.approved_answer(row)
    made = replan_answers.decided_for(decision, job)
    _carry_out(session, row, made, claim_id=row.id)
    _note(session, row, made, actor)
    done = replan_steps.completed_jobs(session, replan_id=row.id)
    if all(each.job_id in done for each in replan_answers.made_of(decision) if _is_to_be_done(each)):
        complete_all(session, row=row, actor=actor)


def apply_running_plan(session: Session, *, running_plan_id: str, actor: Actor) -> RunningPlanRecord:
    """A job runs by an approved plan now; of one that a replan decided, the job is completed there.

    Raises ``NotFound``, ``WrongStatus``.
    """
    found = running_plans.get_running_plan(session, running_plan_id=running_plan_id)
    if found.replan_id is None or found.status is RunningPlanStatus.APPLIED:
        return running_plans.apply_plan(session, running_plan_id=running_plan_id)
    row = replan_rows.locked(session, found.replan_id)
    complete_job(session, row=row, job=found.job_id, actor=actor)
    return running_plans.get_running_plan(session, running_plan_id=running_plan_id)


def _complete_late(session: Session, row: ReplanRow, job: str, actor: Actor) -> None:
    """Take in that a job runs as an overtaken replan decided, as long as no later answer was approved."""
    successor, was_overruled = row, row.chosen is None
    while successor.superseded_by is not None:
        successor = replan_rows.row_of(session, successor.superseded_by)
        was_overruled |= successor.chosen is not None
    if was_overruled or successor.status not in OPEN_REPLANS:
        told = f"the replan {successor.id}, which is {successor.status}, decides about its jobs"
        raise WrongStatus("replan", row.id, row.status, told)
    made = replan_answers.decided_for(replan_answers.approved_answer(row), job)
    _carry_out(session, row, made, claim_id=successor.id)
    _note(session, row, made, actor)
    reports.decide_anew(session, row=successor, reason=f"{made.job_name} was started as decided before.")


def _carry_out(session: Session, row: ReplanRow, made: JobDecision | ServingDecision, *, claim_id: str) -> None:
    """The job runs as decided; nodes that it left whole serve as spares from now on."""
    before = {node for node, _gpu in occupancy.held_gpus(session, cluster_id=row.cluster_id)}
    for stopped in occupancy.settle_job(session, claim_id=claim_id, job_id=made.job_id):
        _stand(session, stopped, JobStanding.PAUSED)
    plan = select(RunningPlanRow.id).where(
        RunningPlanRow.replan_id == row.id,
        RunningPlanRow.job_id == made.job_id,
        RunningPlanRow.status.in_((RunningPlanStatus.APPROVED, RunningPlanStatus.CANCELLED)),
    )
    if (running_plan_id := session.scalar(plan)) is not None:
        running_plans.set_applied(session, running_plan_id=running_plan_id, job_id=made.job_id)
    holds = bool(occupancy.staying_gpus(session, cluster_id=row.cluster_id).get(made.job_id))
    waits = JobStanding.WAITING if made.action is RecoveryAction.WAIT else JobStanding.RUNNING
    _stand(session, made.job_id, waits if holds else JobStanding.PAUSED)
    occupancy.outdate_preparations(session, cluster_id=row.cluster_id)
    after = {node for node, _gpu in occupancy.held_gpus(session, cluster_id=row.cluster_id)}
    occupancy.add_spares(session, cluster_id=row.cluster_id, nodes=before - after)


def _stand(session: Session, job_id: str, standing: JobStanding) -> None:
    if standing is JobStanding.PAUSED:
        running_plans.end_applied(session, job_ids=[job_id])
    running_plans.set_standing(session, job_id=job_id, standing=standing)


def _wake_untouched(session: Session, row: ReplanRow, decision: BatchDecision) -> None:
    """A job that waited and is not touched any more has all that it waited for."""
    for job_id, found in job_plans(session, cluster_id=row.cluster_id).items():
        if job_id in decision.untouched and found.job.standing == JobStanding.WAITING:
            running_plans.set_standing(session, job_id=job_id, standing=JobStanding.RUNNING)


def _note(session: Session, row: ReplanRow, made: JobDecision | ServingDecision, actor: Actor) -> None:
    job = session.get(RunningJobRow, made.job_id)
    if job is None:
        raise NotFound("job", made.job_name)
    replan_steps.take(session, row=row, step=ReplanStep.JOB_COMPLETED, actor=actor, job=job)


def _known_id(session: Session, row: ReplanRow, job: str) -> str:
    """The id of the cluster's job of that name, or what was given."""
    query = select(RunningJobRow.id).where(RunningJobRow.cluster_id == row.cluster_id, RunningJobRow.name == job)
    return session.scalar(query) or job


def _is_to_be_done(made: JobDecision | ServingDecision) -> bool:
    """Whether somebody has to carry it out."""
    return made.is_to_be_done if isinstance(made, ServingDecision) else made.action in TO_BE_DONE
