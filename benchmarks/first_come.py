"""Spares to whoever asks first: what a simple controller would do, to measure decisions against.

One job after the other, in the order in which they are listed, takes the first spares of the list; where too few
are left it drops replicas, and where it cannot it pauses.  Paused jobs start again on spares in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cluster_models.jobs.recovery import BatchDecision, ConsideredAction, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.remarks import remark
from cluster_models.training.plan import StopReason
from solver.problem import SearchOptions
from solver.replanning import options as actions
from solver.replanning.affected_jobs import columns_or_aside
from solver.replanning.batch_decision import conclude
from solver.replanning.columns import JobColumns, View
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.shapes import in_shape
from solver.replanning.touched import held_gpus, touched


def first_come(problem: ReplanProblem, *, grows: bool = False) -> BatchDecision:
    """The decision of spares first come, first served; ``bound`` and ``gap`` say nothing about it.

    ``grows``: jobs that run on fewer GPUs than they want take the size they want once the spares suffice.
    """
    sorted_jobs = touched(problem)
    asking = {job.id for job in (*sorted_jobs.hit, *sorted_jobs.short) if grows or job.is_paused}
    asking |= {job.id for job in sorted_jobs.hit}
    chosen: dict[str, RecoveryOption] = {}
    every: list[JobColumns] = []
    taken: set[str] = set()
    for job in problem.jobs:
        if job.id not in asking:
            continue
        left = problem
        if job.is_paused and taken:
            # where it ran before counts as lost to it once another job took that
            left = replace(problem, spares=tuple(name for name in problem.spares if name not in taken))
        columns = columns_or_aside(left, job)
        if columns.is_aside:
            chosen[job.id] = columns.options[0]
            every.append(columns)
            continue
        own = set(columns.views[0].site.job.nodes)
        free = [name for name in left.spares if name not in taken | own and name in columns.pool]
        chosen[job.id] = _first_that_goes(problem, job, columns, free, chosen, grows=grows)
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
    *,
    grows: bool,
) -> RecoveryOption:
    paused = actions.pause(columns.views[0].site, is_paused=job.is_paused)
    columns.add([paused])
    for answer in _tries(columns.views[0], free, is_paused=job.is_paused, grows=grows):
        columns.add([answer])
        if not isinstance(answer, ConsideredAction) and _is_possible(problem, answer, chosen):
            return answer
    return paused


def _tries(view: View, free: Sequence[str], *, is_paused: bool, grows: bool) -> Iterator[actions.Answer]:
    site = view.site
    if grows:
        yield _as_large_as_wanted(view, free)
    yield actions.swap(site, free[: len(site.broken) * site.units.width], migrate=view.migrate)
    if is_paused or not site.is_touched:
        ended = site.job.id in site.problem.cut_off
        yield actions.keep(site, migrate=view.migrate, restart=is_paused or ended)
    if not is_paused:
        yield actions.shrink(site, migrate=view.migrate)


def _as_large_as_wanted(view: View, free: Sequence[str]) -> actions.Answer:
    """The job with the replicas that it was meant to have, on the first of ``free``."""
    site, configuration = view.site, view.site.job.plan.configuration
    degrees, wanted = configuration.degrees, site.job.wanted_gpus or 0
    live = sum(site.resources.offers(host, 1) for host in dict.fromkeys(site.job.nodes))
    needed = -(-wanted // site.gpus) - live
    if wanted <= degrees.gpus or wanted % (degrees.gpus // degrees.data) or len(free) < needed:
        return actions.refused(RecoveryAction.RESHAPE, remark("too_few_gpus", gpus=wanted))
    full = configuration.with_data(wanted * degrees.data // degrees.gpus)
    return in_shape(view, free[: max(0, needed)], full, SearchOptions(alternatives=0))


def _is_possible(problem: ReplanProblem, option: RecoveryOption, chosen: dict[str, RecoveryOption]) -> bool:
    """Whether the GPU budget and earlier jobs leave enough GPUs for it."""
    if not all(option.holds.isdisjoint(made.holds) for made in chosen.values()):
        return False
    if problem.gpu_budget is None:
        return True
    others = [job for job in problem.jobs if job.id not in chosen and job.id != option.job_id]
    held = sum(len(held_gpus(job)) for job in others) + sum(len(made.holds) for made in chosen.values())
    return held + len(option.holds) <= problem.gpu_budget
