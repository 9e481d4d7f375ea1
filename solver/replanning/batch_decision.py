"""From the options chosen to the decision of the batch, with every sentence and figure that it carries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cluster_models.health.conditions import quarantine_of
from cluster_models.jobs.recovery import BatchDecision, JobDecision, Quarantine, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.training.failure_domains import FailureDomainLosses
from cluster_models.training.plan import StopReason
from solver.answer.survival import survives
from solver.replanning.check import gap_of
from solver.replanning.columns import JobColumns
from solver.replanning.explain import causes_of, considered_actions, lost_gpu_hours, reasons_of
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.program import Gpu
from solver.replanning.touched import held_gpus, spare_gpus


def conclude(
    problem: ReplanProblem,
    columns: Sequence[JobColumns],
    chosen: Mapping[str, RecoveryOption],
    *,
    bound: float,
    stopped_by: StopReason,
    solver: str,
    fallback: bool = False,
) -> BatchDecision:
    """The decision that takes ``chosen`` (by job id) for the jobs of ``columns`` and leaves the others alone."""
    asked = {column.job.id for column in columns}
    frozen = tuple(job for job in problem.jobs if job.id not in asked)
    takers = _takers(problem, chosen, frozen)
    ordered = sorted(columns, key=lambda column: column.job.id)
    jobs = tuple(_decided(problem, column, chosen[column.job.id], takers) for column in ordered)
    free = spare_gpus(problem)
    before = {node for node, _ in free}
    used = {node for gpus in (option.holds for option in chosen.values()) for node, _ in gpus & free}
    objective = math.fsum(made.value_flop for made in jobs)
    bound = max(bound, objective)
    return BatchDecision(
        jobs=jobs,
        untouched=tuple(sorted(job.id for job in frozen)),
        spares_before=tuple(sorted(before)),
        spares_used=tuple(sorted(used)),
        spares_left=tuple(sorted(before - used)),
        quarantine=repeat_offenders(problem),
        horizon_s=problem.horizon_s,
        objective=objective,
        objective_if_waiting=math.fsum(_if_waiting(column) for column in ordered),
        bound=bound,
        gap=gap_of(objective, bound),
        stopped_by=stopped_by,
        fallback=fallback,
        solver=solver,
        snapshot_id=problem.snapshot.id,
    )


def repeat_offenders(problem: ReplanProblem) -> tuple[Quarantine, ...]:
    """Nodes that failed too often by the time of the newest report."""
    if not problem.events:
        return ()
    return quarantine_of(problem.events, now=max(event.occurred_at for event in problem.events))


def _takers(
    problem: ReplanProblem, chosen: Mapping[str, RecoveryOption], frozen: Sequence[RunningJob]
) -> dict[Gpu, str]:
    """The name of the job on each GPU after the decision."""
    names = {job.id: job.name for job in problem.jobs}
    takers = {gpu: job.name for job in frozen for gpu in held_gpus(job)}
    return takers | {gpu: names[job_id] for job_id, option in chosen.items() for gpu in option.holds}


def _if_waiting(columns: JobColumns) -> float:
    """Value of the job if nothing moves: it runs on where it can, else it waits for what it lost."""
    still = {RecoveryAction.NONE, RecoveryAction.WAIT}
    return max((option.value_flop for option in columns.options if option.action in still), default=0.0)


def _survives(problem: ReplanProblem, job: RunningJob, option: RecoveryOption) -> tuple[FailureDomainLosses, ...]:
    """Losses that may come next; nothing is said of a plan with ranks left out, and of one that stands still."""
    if option.plan is None or option.action is RecoveryAction.REROUTE:
        return ()
    return survives(option.plan, job.recovery, problem.snapshot.cluster)


def _decided(
    problem: ReplanProblem, columns: JobColumns, option: RecoveryOption, takers: Mapping[Gpu, str]
) -> JobDecision:
    job = columns.job
    rivals = [rival for rival in (*columns.options, *columns.declined) if rival is not option]
    return JobDecision(
        job_id=job.id,
        job_name=job.name,
        action=option.action,
        plan=option.plan,
        migration=option.migration,
        tokens_per_s_before=0.0 if job.is_paused else job.plan.tokens_per_s,
        tokens_per_s_after=option.tokens_per_s,
        limited_by=option.limited_by,
        value_flop=option.value_flop,
        lost_gpu_hours=lost_gpu_hours(problem, job, option),
        survives=_survives(problem, job, option),
        causes=causes_of(problem, job),
        reasons=reasons_of(problem, job, option, rivals, takers),
        considered=considered_actions(option, rivals, tuple(columns.refused.values()), job, takers),
    )
