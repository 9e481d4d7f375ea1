"""Bounds on the options of a job that nobody has worked out: docs/replanning.md proves each."""

from __future__ import annotations

from collections.abc import Iterator

from solver.placement.bounds import placement_bound_s
from solver.replanning.columns import JobColumns, View
from solver.replanning.migration import WARM_UP_STEPS
from solver.replanning.program import Gpu, Promise
from solver.replanning.values import work_flop


def promises_of(columns: JobColumns, pool: frozenset[Gpu]) -> Iterator[Promise]:
    """What stands for all options of the job that its ``columns`` lack; ``pool``: GPUs that may be given out."""
    for view in columns.views:
        if view.site.is_touched:
            yield _any_swap(columns, view, pool)


def _any_swap(columns: JobColumns, view: View, pool: frozenset[Gpu]) -> Promise:
    """The lost slots on any nodes of the pool: the GPUs of all other slots stay, as many as they had are taken."""
    site, job = view.site, columns.job
    step_s = placement_bound_s(site.candidate.placement)
    recovery = job.recovery
    least_s = (recovery.restart_low_s + recovery.restart_high_s) / 2 + sum(WARM_UP_STEPS) / 2 * step_s
    tokens_per_s = site.asked.workload.tokens_per_step / step_s
    broken = {host for slot in site.broken for host in site.units.members[slot]}
    ranks = site.job.plan.placement.ranks
    stays = frozenset((place.node, place.gpu) for place in ranks if place.node not in broken) - site.lost
    takes = len(stays & pool) + len(ranks) - len(stays)
    value = work_flop(job, tokens_per_s, least_s, site.problem.horizon_s)
    return Promise(job.id, value, stays, {"all": takes}, len(ranks))
