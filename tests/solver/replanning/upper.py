"""Upper bounds of every option of an action: throughput over the horizon less a restart."""

from __future__ import annotations

import math

from cluster_models.jobs.recovery import RecoveryAction
from solver.replanning.optimistic import NO_SIZES, SizeBounds, bounds_of, loose_prices, shrink_bounds, swap_rate
from solver.replanning.rerouting import cannot_reroute, living_cells, rerouted
from solver.replanning.reshaping import asked_on
from solver.replanning.site import JobSite
from solver.replanning.values import work_flop

NO_OPTION = -math.inf
"""The value of an action that cannot be taken."""


def upper_value(site: JobSite, action: RecoveryAction, *, nodes: int | None = None) -> float:
    """FLOPs that no option of ``action`` with at most ``nodes`` nodes of the site is worth more than.

    ``-inf`` where there is none.  ``reshape`` costs the price of all shapes, a second or so; the others little.
    """
    horizon_s, recovery = site.problem.horizon_s, site.job.recovery
    restart_s = (recovery.restart_low_s + recovery.restart_high_s) / 2  # the middle of every downtime is no less
    gpus = None if nodes is None else nodes * site.gpus
    held = len(site.job.nodes)
    match action:
        case RecoveryAction.PAUSE:
            return 0.0
        case RecoveryAction.WAIT:
            rate, restart_s = site.job.plan.tokens_per_s, restart_s + site.problem.back_after_s
        case RecoveryAction.NONE:
            rate, restart_s = _kept_rate(site), 0.0
        case RecoveryAction.RESTART_IN_PLACE:
            rate = 0.0 if len(site.broken) else _rate(site, site.step_of(site.home))
        case RecoveryAction.SWAP:
            rate = 0.0 if nodes is not None and nodes < held else swap_rate(site)
        case RecoveryAction.REROUTE:
            rate = _rerouted_rate(site)
        case RecoveryAction.SHRINK_DATA_PARALLEL:
            rate = reached(shrink_bounds(site), gpus)
        case RecoveryAction.RESHAPE:
            rate = reached(reshape_bounds(site), gpus)
    return work_flop(site.job, rate, restart_s, horizon_s) if rate > 0 else NO_OPTION


def reached(sizes: SizeBounds, gpus: int | None) -> float:
    """The best throughput of options with at most ``gpus``, or with any number; 0 where nothing is as small."""
    small = sizes.tokens_per_s if gpus is None else sizes.tokens_per_s[sizes.gpus <= gpus]
    return float(small.max(initial=0.0))


def _rate(site: JobSite, step_s: float) -> float:
    return site.asked.workload.tokens_per_step / step_s


def _kept_rate(site: JobSite) -> float:
    if site.is_rerouted:
        return site.job.plan.tokens_per_s
    return 0.0 if len(site.broken) else _rate(site, site.step_of(site.home))


def _rerouted_rate(site: JobSite) -> float:
    alive = living_cells(site)
    if alive.all() or cannot_reroute(site, alive):
        return 0.0
    return _rate(site, max(rerouted(site, alive).step_s, site.job.plan.time.step_s))


def reshape_bounds(site: JobSite) -> SizeBounds:
    """Bounds of all shapes that the planner knows, on the job's live nodes and all others of its site."""
    if not site.job.recovery.may_reshape:
        return NO_SIZES
    asked = asked_on(site, site.others)
    return bounds_of(asked, loose_prices(asked, site.links)[1], least_gpus=site.job.recovery.least_gpus)
