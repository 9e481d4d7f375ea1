"""Spares to whoever asks first: what a simple controller would do, to measure decisions against.

One job after the other, in the order in which they are listed, takes the first spares of the list; where too few
are left it drops replicas, and where it cannot it pauses.  Paused jobs start again on spares in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cluster_models.plan import StopReason
from cluster_models.recovery import BatchDecision, ConsideredAction
from cluster_models.running import RunningJob
from solver.replanning import options as actions
from solver.replanning.columns import JobColumns, View, columns_of
from solver.replanning.concluding import conclude
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.touched import Touched, held_gpus, touched


def first_come(problem: ReplanProblem) -> BatchDecision:
    """The decision of spares first come, first served; ``bound`` and ``gap`` say nothing about it."""
    sorted_jobs = touched(problem)
    asking = {job.id for job in (*sorted_jobs.hit, *sorted_jobs.short)}
    chosen: dict[str, RecoveryOption] = {}
    every: list[JobColumns] = []
    taken: set[str] = set()
    for job in problem.jobs:
        if job.id not in asking or (job.id not in {hit.id for hit in sorted_jobs.hit} and not job.is_paused):
            continue
        left = problem
        if job.is_paused and taken:
            # where it ran before counts as lost to it once another job took that
            left = replace(problem, spares=tuple(name for name in problem.spares if name not in taken))
        columns = columns_of(left, job, Touched(hit=(job,)))
        own = set(columns.views[0].site.job.nodes)
        free = [name for name in left.spares if name not in taken | own and name in columns.pool]
        chosen[job.id] = _first_that_goes(problem, job, columns, free, chosen)
        taken |= {node for node, _ in chosen[job.id].holds}
        every.append(columns)
    bound = math.fsum(option.value_flop for option in chosen.values())
    return conclude(
        problem, every, chosen, bound=bound, stopped_by=StopReason.NO_SEARCH, solver="first come, first served"
    )


def _first_that_goes(
    problem: ReplanProblem,
    job: RunningJob,
    columns: JobColumns,
    free: Sequence[str],
    chosen: dict[str, RecoveryOption],
) -> RecoveryOption:
    view = columns.views[0]
    needed = len(view.site.broken) * view.site.units.width
    paused = actions.pause(view.site)
    columns.add([paused])
    for answer in _tries(view, free[:needed], is_paused=job.is_paused):
        columns.add([answer])
        if not isinstance(answer, ConsideredAction) and _within_budget(problem, answer, chosen):
            return answer
    return paused


def _tries(view: View, spares: Sequence[str], *, is_paused: bool) -> Iterator[actions.Answer]:
    yield actions.swap(view.site, spares, migrate=view.migrate)
    if is_paused:
        yield actions.keep(view.site, migrate=view.migrate, restart=True)
    else:
        yield actions.shrink(view.site, migrate=view.migrate)


def _within_budget(problem: ReplanProblem, option: RecoveryOption, chosen: dict[str, RecoveryOption]) -> bool:
    if problem.gpu_budget is None:
        return True
    others = [job for job in problem.jobs if job.id not in chosen and job.id != option.job_id]
    held = sum(len(held_gpus(job)) for job in others) + sum(len(made.holds) for made in chosen.values())
    return held + len(option.holds) <= problem.gpu_budget
