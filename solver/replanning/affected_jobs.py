"""The jobs that a decision is about, each ready to have its options worked out, or set aside where that cannot be.

A job whose plan does not fit the cluster any more costs the others nothing: it stands still, and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cluster_models.errors import InvalidInput
from cluster_models.jobs.recovery import Migration, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.remarks import remark
from solver.replanning.columns import JobColumns, columns_of
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.site import site_of
from solver.replanning.touched import Touched, held_gpus, spare_gpus, worth_first

NOTICEABLE: Final = 0.01
"""Share of its planned throughput that a job on slower nodes or links must lose before anything is done."""


def asked_columns(problem: ReplanProblem, sorted_jobs: Touched) -> list[JobColumns]:
    """The jobs to decide about, those of most worth first: empty where nothing that costs anything happened.

    Jobs on slower nodes or links that lose nothing noticeable stay as they are, and so do movable ones where no
    other job gains by it; these give up no GPU.  Jobs that cannot be prepared are set aside, those that run on not
    even asked.
    """
    asked = replace(sorted_jobs, slowed=tuple(job for job in sorted_jobs.slowed if _loses(problem, job)))
    if not (asked.hit or asked.slowed or spare_gpus(problem)):
        asked = replace(asked, short=())
    if not (asked.hit or asked.slowed or asked.short):
        asked = replace(asked, movable=())
    wrong: dict[str, InvalidInput] = {}
    while True:
        fit, found, known = asked.without(wrong), list[JobColumns](), len(wrong)
        for job in fit.in_question:
            try:
                found.append(columns_of(problem, job, fit))
            except InvalidInput as misfit:
                wrong[job.id] = misfit
        if len(wrong) == known:
            break  # else the others were counting on its GPUs
    still = [job for job in (*asked.hit, *asked.short) if job.id in wrong and (job in asked.hit or job.is_paused)]
    found += [set_aside(job, wrong[job.id]) for job in still]
    return sorted(found, key=lambda columns: worth_first(columns.job))


def columns_or_aside(problem: ReplanProblem, job: RunningJob) -> JobColumns:
    """The job on its own, or set aside."""
    try:
        return columns_of(problem, job, Touched(hit=(job,)))
    except InvalidInput as wrong:
        return set_aside(job, wrong)


def set_aside(job: RunningJob, wrong: InvalidInput) -> JobColumns:
    """A job that nothing can be worked out for because of what is ``wrong``: it stands still on what it holds.

    Or, its other option, without it.
    """
    pause = RecoveryOption(
        job_id=job.id,
        action=RecoveryAction.PAUSE,
        holds=frozenset(),
        value_flop=0.0,
        tokens_per_s=0.0,
        limited_by=remark("limit_plan"),
        migration=Migration(),
        plan=None,
        reason=remark("not_worked_out", problem=str(wrong)),
    )
    wait = replace(pause, action=RecoveryAction.WAIT, holds=held_gpus(job))
    columns = JobColumns(job, (), ())
    columns.add([pause] if job.is_paused else [wait, pause])
    return columns


def standing_still(problem: ReplanProblem, asked: Sequence[JobColumns], taken: int) -> dict[str, RecoveryOption]:
    """Option of each job set aside, by its id: it keeps its GPUs, if the budget leaves them beside ``taken``."""
    chosen: dict[str, RecoveryOption] = {}
    for columns in asked:
        if columns.is_aside:
            first, *_, last = (*columns.options, columns.options[-1])
            fits = problem.gpu_budget is None or taken + len(first.holds) <= problem.gpu_budget
            chosen[columns.job.id] = first if fits else last
            taken += len(chosen[columns.job.id].holds)
    return chosen


def _loses(problem: ReplanProblem, job: RunningJob) -> bool:
    """Whether a job on slower nodes or links loses a noticeable part of its throughput, or runs around losses."""
    try:
        site = site_of(problem, job, (), frozenset())
    except InvalidInput:
        return False
    return site.is_touched or site.step_of(site.home) * (1 - NOTICEABLE) > job.plan.time.step_s
