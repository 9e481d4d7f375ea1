"""Bounds on the options of a job that nobody has worked out, and how to work the promising ones out.

``docs/replanning.md`` proves each bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import numpy as np

from cluster_models.plan import Configuration
from cluster_models.recovery import ConsideredAction, RecoveryAction
from solver.candidates import FloatArray, IntArray
from solver.costs.training_state import states_of
from solver.placement.bounds import placement_bound_s
from solver.problem import SearchOptions
from solver.replanning import options as actions
from solver.replanning.columns import JobColumns, View
from solver.replanning.migration import WARM_UP_STEPS
from solver.replanning.optimistic import SizeBounds, shrink_bounds, swap_rate
from solver.replanning.program import Gpu, Promise
from solver.replanning.shapes import ShapeBook, alike_inside, in_shape
from solver.replanning.shrinking import data_sizes
from solver.replanning.site import JobSite, planning_problem, prepared
from solver.replanning.values import flops_per_token, transfer_flop, work_flop

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
    return (*found, *_sizes(columns, 0, RecoveryAction.RESHAPE, shapes, pool))


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
    """What the GPUs of an option of ``ask`` cost at least; ``cheapest[n]``: the n cheapest of the pool."""
    held = sum(gpu_prices.get(gpu, 0.0) for gpu in ask.promise.holds)
    further = max(0, ask.promise.takes.get(POOL, 0) - len(ask.promise.holds))
    return held + cheapest[min(further, len(cheapest) - 1)] + budget * ask.promise.gpus


def further_nodes(columns: JobColumns, ask: Ask) -> int:
    """Nodes beyond the job's own that an option of ``ask`` needs."""
    site = columns.views[ask.view].site
    return max(0, -(-ask.gpus // site.gpus) - _live_nodes(site))


def _live_nodes(site: JobSite) -> int:
    return sum(site.resources.offers(host, 1) for host in dict.fromkeys(site.job.nodes))


def work_out(
    columns: JobColumns,
    ask: Ask,
    nodes: Sequence[str],
    book: ShapeBook | None,
    options: Callable[[], SearchOptions],
    *,
    prices: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[actions.Answer]:
    """The option that keeps the promise of ``ask`` best on the first of ``nodes``, as many as it needs.

    What makes more of the same nodes comes before it.  None where it was asked before.  ``book``: the shapes of the
    job; ``options``: of a search for one that begins now; ``prices``: FLOPs that nodes must be worth, among which a
    swap chooses.
    """
    view = columns.views[ask.view]
    site, migrate = view.site, view.migrate
    if ask.action is RecoveryAction.SWAP:
        yield actions.swap(site, nodes, migrate=migrate, prices=prices)
        return
    gpus, shape = ask.gpus, None
    if ask.action is RecoveryAction.RESHAPE and book is not None:
        shape = book.search(ask.gpus, columns.job.recovery.least_gpus, options())
        gpus = ask.gpus if shape is None else shape.degrees.gpus
    taken = tuple(nodes[: further_nodes(columns, replace(ask, gpus=gpus))])
    if not columns.is_new(ask.action, ask.view, gpus, frozenset(taken)):
        return
    if ask.action is RecoveryAction.SHRINK_DATA_PARALLEL:
        degrees = site.job.plan.configuration.degrees
        replicas = gpus * degrees.data // degrees.gpus
        columns.proven.setdefault((ask.view, gpus), _best_rate(site, replicas))
        room = (_live_nodes(site) + len(taken)) * site.gpus
        if site.is_touched and room >= degrees.gpus:
            yield actions.swap(site, taken, migrate=migrate)
        elif room * degrees.data // degrees.gpus > replicas:
            yield actions.shrink(site, migrate=migrate, spares=taken)
        yield actions.shrink(site, migrate=migrate, replicas=replicas, spares=taken)
    elif shape is not None:
        if _runs_as(site.job.plan.configuration, shape) and site.is_touched:
            yield actions.swap(site, taken, migrate=migrate)
        answer = in_shape(view, taken, shape, options())
        if isinstance(answer, ConsideredAction):
            left = options()
            answer = actions.reshape(site, taken, left.time_limit_s, migrate=migrate, seed=left.seed)
        yield answer


def _proven(sizes: SizeBounds, columns: JobColumns, number: int) -> SizeBounds:
    """``sizes`` with what is known of placements of some of them."""
    rates = [
        min(rate, columns.proven.get((number, gpus), rate))
        for gpus, rate in zip(sizes.gpus.tolist(), sizes.tokens_per_s.tolist(), strict=True)
    ]
    return replace(sizes, tokens_per_s=np.array(rates))


def _best_rate(site: JobSite, replicas: int) -> float:
    """Tokens per second that ``replicas`` cannot beat on any units that serve, however the batch is cut.

    Infinite where it matters inside which units transfers are made.
    """
    if not alike_inside(site.candidate.fabric):
        return math.inf
    serving = [site.units.members[unit] for unit in np.flatnonzero(site.serves)]
    if not serving:
        return 0.0
    rates = [0.0]
    for size in data_sizes(site, replicas):
        if size.data < replicas:
            break
        asked = planning_problem(site.resources, size.configuration, global_batch=size.global_batch)
        gpus = min(site.gpus, size.configuration.degrees.gpus)
        candidate = prepared(site.resources, serving, asked, size.configuration, gpus)
        if candidate.placement.slots <= len(serving):
            rates.append(asked.workload.tokens_per_step / placement_bound_s(candidate.placement))
    return max(rates)


def _runs_as(running: Configuration, shape: Configuration) -> bool:
    """Whether they differ in nothing that moves state."""
    return replace(running, stage_layers=shape.stage_layers) == shape


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
        (value,) = _values(view, np.array([rate]), len(ranks), state.rank_bytes.min(keepdims=True), warm_up=True)
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
    values = _values(view, rates, every, rank_bytes, warm_up=action is RecoveryAction.RESHAPE)
    best = -math.inf
    for row in np.lexsort((-values, every)).tolist():
        gpus, value = int(every[row]), float(values[row])
        if value > best:
            best = value
            promise = Promise(job.id, value, frozenset(), {POOL: max(0, gpus - elsewhere)}, gpus)
            yield Ask(promise, action, number, gpus)


def _values(
    view: View, tokens_per_s: FloatArray, gpus: IntArray | int, rank_bytes: FloatArray, *, warm_up: bool
) -> FloatArray:
    """(n,) FLOPs over the horizon less restart and repeated steps, and warm-up where the batch is the job's own.

    Of ``gpus`` ranks each holds ``rank_bytes`` at least: those that find no room where the job was get them over
    network cards.  What storage alone still has is read whatever the plan.
    """
    site, job = view.site, view.site.job
    restart_s = (job.recovery.restart_low_s + job.recovery.restart_high_s) / 2
    steps = view.steps_lost + (sum(WARM_UP_STEPS) / 2 if warm_up else 0.0)
    still_s = restart_s + steps * site.asked.workload.tokens_per_step / tokens_per_s
    moved_bytes = np.maximum(0, gpus - view.near_gpus) * rank_bytes
    if view.stored_bytes:
        moved_bytes = np.full_like(moved_bytes, view.stored_bytes)
    works_s = np.maximum(0.0, site.problem.horizon_s - still_s)
    price = transfer_flop(job, 1.0)
    return np.asarray(job.weight * flops_per_token(job) * tokens_per_s * works_s - price * moved_bytes)
