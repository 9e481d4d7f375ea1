"""Bounds on the options of a job that nobody has worked out; ``docs/replanning.md`` proves each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.jobs.recovery import RecoveryAction
from solver.candidates import FloatArray, IntArray
from solver.costs.training_state import states_of
from solver.replanning.columns import JobColumns, View
from solver.replanning.migration import WARM_UP_STEPS
from solver.replanning.optimistic import SizeBounds, shrink_bounds, swap_rate
from solver.replanning.program import Gpu, Promise
from solver.replanning.site import JobSite
from solver.replanning.values import (
    flops_per_token,
    least_gain_flop,
    new_shape_share,
    spares_flop,
    transfer_flop,
    work_flop,
)

POOL: Final = "all"
"""The pool of all GPUs that a decision may give out."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A promise about the options of one action with ``gpus`` GPUs, seen from one of the job's views."""

    promise: Promise
    action: RecoveryAction
    view: int
    gpus: int


def asks_of(columns: JobColumns, pool: frozenset[Gpu], shapes: SizeBounds) -> tuple[Ask, ...]:
    """Promises that cover every option of the job that has more than one placement.

    ``pool``: GPUs that may be given out; ``shapes``: bounds of all its shapes.
    """
    found = [*_swaps(columns, pool)]
    for number, view in enumerate(columns.views):
        sizes = _proven(shrink_bounds(view.site), columns, number)
        found += _sizes(columns, number, RecoveryAction.SHRINK_DATA_PARALLEL, sizes, pool)
    found += _sizes(columns, 0, RecoveryAction.RESHAPE, shapes, pool)
    return tuple(ask for ask in found if ask.promise.value_flop >= columns.least_flop)


def unpriced(columns: JobColumns) -> Ask:
    """A promise about every option of the job that prices none: all GPUs that it may have compute at their peak.

    All that takes from the horizon is the middle of the restart, which every downtime contains.
    """
    job, site = columns.job, columns.views[0].site
    peak = max(kind.peak_flops[site.asked.workload.precision] for kind in site.candidate.fabric.kinds)
    gpus = max(job.gpus_at_most, job.plan.configuration.degrees.gpus)
    restart_s = (job.recovery.restart_low_s + job.recovery.restart_high_s) / 2
    value = work_flop(job, gpus * peak / flops_per_token(job), restart_s, site.problem.horizon_s)
    return Ask(Promise(job.id, value), RecoveryAction.RESHAPE, 0, gpus)


def price_of(ask: Ask, gpu_prices: Mapping[Gpu, float], cheapest: Sequence[float], budget: float) -> float:
    """Price of the GPUs of an option of ``ask`` at least; ``cheapest[n]``: the n cheapest of the pool."""
    held = sum(gpu_prices.get(gpu, 0.0) for gpu in ask.promise.holds)
    further = max(0, ask.promise.takes.get(POOL, 0) - len(ask.promise.holds))
    return held + cheapest[min(further, len(cheapest) - 1)] + budget * ask.promise.gpus


def _proven(sizes: SizeBounds, columns: JobColumns, number: int) -> SizeBounds:
    """``sizes`` with what is known of placements of some of them."""
    rates = [
        min(rate, columns.proven.get((number, gpus), rate))
        for gpus, rate in zip(sizes.gpus.tolist(), sizes.tokens_per_s.tolist(), strict=True)
    ]
    return replace(sizes, tokens_per_s=np.array(rates))


def _swaps(columns: JobColumns, pool: frozenset[Gpu]) -> Iterator[Ask]:
    """The lost slots on any nodes of the pool: the GPUs of all other slots stay, as many as they had are taken."""
    for number, view in enumerate(columns.views):
        site = view.site
        rate = swap_rate(site) if site.is_touched else 0.0
        if rate <= 0:
            continue
        broken = {host for slot in site.broken for host in site.units.members[slot]}
        ranks = site.job.plan.placement.ranks
        stays = frozenset((place.node, place.gpu) for place in ranks if place.node not in broken) - site.lost
        takes = len(stays & pool) + len(ranks) - len(stays)
        (state,) = states_of((site.job.plan,), site.job.recovery)
        (value,) = _values(
            view, np.array([rate]), len(ranks), state.rank_bytes.min(keepdims=True), RecoveryAction.SWAP
        )
        value -= _spares(site, takes, pool)
        promise = Promise(columns.job.id, float(value), stays, {POOL: takes}, len(ranks))
        yield Ask(promise, RecoveryAction.SWAP, number, len(ranks))


def _sizes(
    columns: JobColumns, number: int, action: RecoveryAction, sizes: SizeBounds, pool: frozenset[Gpu]
) -> Iterator[Ask]:
    """Options with so many GPUs, wherever; of the job's own some may be out of the pool."""
    view, job = columns.views[number], columns.job
    own = {(place.node, place.gpu) for place in view.site.job.plan.placement.ranks}
    elsewhere = len(own - view.site.lost - pool)
    possible = (sizes.gpus <= job.gpus_at_most) & (sizes.tokens_per_s > 0)
    every, rates, rank_bytes = sizes.gpus[possible], sizes.tokens_per_s[possible], sizes.rank_bytes[possible]
    values = _values(view, rates, every, rank_bytes, action)
    values -= _spares(view.site, np.maximum(0, every - elsewhere), pool)
    best = -math.inf
    for row in np.lexsort((-values, every)).tolist():
        gpus, value = int(every[row]), float(values[row])
        if value > best:
            best = value
            promise = Promise(job.id, value, frozenset(), {POOL: max(0, gpus - elsewhere)}, gpus)
            yield Ask(promise, action, number, gpus)


def _spares(site: JobSite, takes: IntArray | int, pool: frozenset[Gpu]) -> FloatArray:
    """FLOPs that spares among ``takes`` GPUs of ``pool`` cost at least: all beyond its other GPUs are spares."""
    problem = site.problem
    others = len(pool - problem.free_spares)
    price = spares_flop(site.job, 1, problem.spare_worth_share, problem.horizon_s)
    return np.asarray(price * np.maximum(0, np.asarray(takes) - others))


def _values(
    view: View, tokens_per_s: FloatArray, gpus: IntArray | int, rank_bytes: FloatArray, action: RecoveryAction
) -> FloatArray:
    """(n,) FLOPs over the horizon less restart, repeated steps, warm-up where the batch is the job's own, and gain.

    The last is what stopping the job, or another shape, must gain at least.

    Each of ``gpus`` ranks holds ``rank_bytes`` at least: ranks without room where the job was get them over network
    cards. State that only storage still has is read whatever the plan.
    """
    site, job = view.site, view.site.job
    restart_s = (job.recovery.restart_low_s + job.recovery.restart_high_s) / 2
    steps = view.steps_lost + (0.0 if action is RecoveryAction.SHRINK_DATA_PARALLEL else sum(WARM_UP_STEPS) / 2)
    still_s = restart_s + steps * site.asked.workload.tokens_per_step / tokens_per_s
    moved_bytes = np.maximum(0, gpus - view.near_gpus) * rank_bytes
    if view.stored_bytes:
        moved_bytes = np.full_like(moved_bytes, view.stored_bytes)
    works_s = np.maximum(0.0, site.problem.horizon_s - still_s)
    price, horizon_s = transfer_flop(job, 1.0), site.problem.horizon_s
    work = job.weight * flops_per_token(job) * tokens_per_s * works_s
    least_gain: FloatArray | float = 0.0
    if job.id in site.problem.whole:
        least_gain = least_gain_flop(job, horizon_s)
    elif action is RecoveryAction.RESHAPE:
        least_gain = new_shape_share(job) * work
    return np.asarray(work - price * moved_bytes - least_gain)
