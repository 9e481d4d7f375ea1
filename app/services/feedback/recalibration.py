"""A calibration fitted to the runs that were reported, with its effect: what would change if it were taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.running_tables import RunningJobRow, RunningPlanRow
from app.db.status import PlanKind, RunningPlanStatus
from app.documents.calibration import CalibrationDocument
from app.documents.training_runs import MeasuredRuns
from app.serialization import load
from app.services.calibration.calibrating import Measured
from app.services.calibration.fitting_process import MOST_RUNS_SERVED, fit_measured
from app.services.clusters import clusters, snapshots
from app.services.feedback.measured_runs import MeasuredRunRecord, RunFilter, newest_runs, runs_to_fit
from app.services.subprocesses import in_subprocess
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.errors import InvalidInput, MeshwrightError
from cluster_models.training.frameworks import Framework, frameworks
from cluster_models.training.plan import Plan
from solver.predict import predict
from solver.problem import PlanningProblem

MOST_JOBS: Final = 20
EFFECTS_LIMIT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class JobEffect:
    """The step of a running job as its plan says, and as it would be predicted; ``None`` where it cannot be."""

    job: str
    cluster_name: str
    step_s: float
    new_step_s: float | None


@dataclass(frozen=True, slots=True)
class Recalibration:
    """A calibration that is offered, the runs it is fitted to, and what it would change."""

    document: CalibrationDocument
    runs: tuple[MeasuredRunRecord, ...]
    jobs: tuple[JobEffect, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """All that a recalibration is worked out from."""

    runs: tuple[MeasuredRunRecord, ...]
    measured: MeasuredRuns
    jobs: tuple[RunningJob, ...]


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job with its plan and the problem that the plan answers."""

    name: str
    plan: Plan
    problem: PlanningProblem


def ask(session: Session, *, wanted: RunFilter) -> Question:
    """The newest runs that are wanted, and the jobs whose predictions may change; raises ``InvalidInput``."""
    runs = newest_runs(session, wanted=wanted, most=MOST_RUNS_SERVED)
    if not runs:
        problem, remedy = (
            "no run of this kind was reported",
            "report one: POST /api/v1/runs, or meshwright runs report",
        )
        raise InvalidInput("runs", 0, problem, remedy)
    fitted = runs_to_fit(session, wanted=wanted, most=MOST_RUNS_SERVED)
    measured = MeasuredRuns(fitted, tuple(map(_group, runs)), _described(fitted))
    names = {run.cluster_id for run in runs if run.cluster_id is not None}
    return Question(runs, measured, tuple(_jobs(session, names, wanted.framework)))


def recalibrate(question: Question, *, name: str) -> Recalibration:
    """The calibration that the runs tell, and its effect; both are worked out in a process beside this one."""
    document = fit_measured(Measured(runs=question.measured), name=name)
    new = in_subprocess(
        _new_steps,
        question.jobs,
        document.to_fitted(),
        limit_s=EFFECTS_LIMIT_S,
        what="jobs",
        command="meshwright predict --calibration FILE",
    )
    effects = (
        JobEffect(job.name, job.problem.snapshot.cluster.name, job.plan.time.step_s, step_s)
        for job, step_s in zip(question.jobs, new, strict=True)
    )
    return Recalibration(document, question.runs, tuple(effects))


def default_name(wanted: RunFilter) -> str:
    """A name for a calibration of these runs that tells when it was made."""
    parts = (wanted.cluster, wanted.framework, "runs", f"{datetime.now(UTC):%Y-%m-%d}")
    return "-".join(part for part in parts if part)


def _group(run: MeasuredRunRecord) -> str:
    """Runs of one configuration count as one sweep."""
    return f"{run.framework} {run.model} {run.predicted.degrees}"


def _described(runs: Sequence[TrainingRun]) -> dict[str, Framework]:
    """The frameworks of the runs that are not shipped."""
    shipped = frameworks()
    own = {run.workload.framework.name: run.workload.framework for run in runs}
    return {name: framework for name, framework in own.items() if name not in shipped}


def _jobs(session: Session, cluster_ids: set[str], framework: str | None) -> list[RunningJob]:
    """Jobs that run on these clusters now."""
    query = (
        select(RunningJobRow.name, RunningJobRow.cluster_id, RunningPlanRow.plan)
        .join(RunningPlanRow, RunningPlanRow.job_id == RunningJobRow.id)
        .where(
            RunningJobRow.cluster_id.in_(cluster_ids),
            RunningJobRow.kind == PlanKind.TRAINING,
            RunningPlanRow.status == RunningPlanStatus.APPLIED,
        )
        .order_by(RunningJobRow.name)
        .limit(MOST_JOBS)
    )
    found, known = [], {}
    for name, cluster_id, document in session.execute(query):
        plan = load(Plan, document)
        if plan.architecture is None or plan.workload is None:
            continue
        if framework is not None and plan.workload.framework.name != framework:
            continue
        if cluster_id not in known:
            stored = clusters.get_cluster(session, reference=cluster_id)
            known[cluster_id] = snapshots.current_snapshot(session, stored=stored)
        found.append(RunningJob(name, plan, PlanningProblem(known[cluster_id], plan.architecture, plan.workload)))
    return found


def _new_steps(jobs: Sequence[RunningJob], fitted: FittedParameters) -> list[float | None]:
    """The predicted step of each job with these parameters."""
    return [_new_step(job, fitted) for job in jobs]


def _new_step(job: RunningJob, fitted: FittedParameters) -> float | None:
    place = job.plan.placement
    problem = PlanningProblem(job.problem.snapshot, job.problem.architecture, job.problem.workload, fitted=fitted)
    try:
        again = predict(problem, job.plan.configuration, hosts=place.hosts, gpus_per_node=place.gpus_per_node)
    except MeshwrightError:  # a node that is out of order now, for one
        return None
    return again.time.step_s
