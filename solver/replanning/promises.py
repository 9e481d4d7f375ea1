"""Bounds on the options of a job that nobody has worked out, and how to work the promising ones out.

``docs/replanning.md`` proves each bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cluster_models.recovery import RecoveryAction
from solver.replanning import options as actions
from solver.replanning.columns import JobColumns, View
from solver.replanning.migration import WARM_UP_STEPS
from solver.replanning.optimistic import SizeBounds, bounds_of, loose_prices, shrink_bounds, size_bounds, swap_rate
from solver.replanning.program import Gpu, Promise
from solver.replanning.reshaping import asked_on, at_most
from solver.replanning.values import flops_per_token, work_flop

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
        sizes = shrink_bounds(view.site)
        found += _sizes(columns, number, RecoveryAction.SHRINK_DATA_PARALLEL, sizes, pool)
    return (*found, *_sizes(columns, 0, RecoveryAction.RESHAPE, shapes, pool))


def shapes_by_job(every: Sequence[JobColumns]) -> dict[str, SizeBounds]:
    """The bounds of all shapes of each job; jobs that train the same share those of all their nodes together."""
    found: dict[str, SizeBounds] = {}
    for group in _alike(every):
        first = group[0].views[0].site
        nodes = {node for columns in group for node in (*columns.pool, *columns.job.nodes)}
        most = max(columns.job.gpus_at_most for columns in group)
        least = min(columns.job.recovery.least_gpus for columns in group)
        asked = at_most(asked_on(first, nodes - set(first.job.nodes)), most)
        bounds = bounds_of(asked, loose_prices(asked, first.links)[1], least_gpus=least)
        found |= {columns.job.id: bounds for columns in group}
    return found


def at_peak(columns: JobColumns) -> SizeBounds:
    """Bounds of all shapes without pricing any: every GPU that the job may have computes at its peak."""
    job, site = columns.job, columns.views[0].site
    peak = max(kind.peak_flops[site.asked.workload.precision] for kind in site.candidate.fabric.kinds)
    return size_bounds([job.recovery.least_gpus], [job.gpus_at_most * peak / flops_per_token(job)])


def price_of(ask: Ask, gpu_prices: Mapping[Gpu, float], cheapest: Sequence[float], budget: float) -> float:
    """What the GPUs of an option of ``ask`` cost at least; ``cheapest[n]``: the n cheapest of the pool."""
    held = sum(gpu_prices.get(gpu, 0.0) for gpu in ask.promise.holds)
    further = max(0, ask.promise.takes.get(POOL, 0) - len(ask.promise.holds))
    return held + cheapest[min(further, len(cheapest) - 1)] + budget * ask.promise.gpus


def work_out(
    columns: JobColumns, ask: Ask, node_prices: Mapping[str, float], *, limit_s: float, seed: int
) -> Iterator[actions.Answer]:
    """The option that keeps the promise of ``ask`` best at the prices of nodes; none where it was asked before."""
    view = columns.views[ask.view]
    site, migrate = view.site, view.migrate
    if ask.action is RecoveryAction.SWAP:
        yield actions.swap(site, columns.pool, migrate=migrate, prices=node_prices)
        return
    nodes = _cheapest_nodes(columns, view, ask.gpus, node_prices)
    if not columns.is_new(ask.action, ask.view, ask.gpus, frozenset(nodes)):
        return
    if ask.action is RecoveryAction.SHRINK_DATA_PARALLEL:
        degrees = site.job.plan.configuration.degrees
        replicas = ask.gpus * degrees.data // degrees.gpus
        yield actions.shrink(site, migrate=migrate, replicas=replicas, spares=nodes)
    else:
        yield actions.reshape(site, nodes, limit_s, migrate=migrate, seed=seed)


def _cheapest_nodes(
    columns: JobColumns, view: View, gpus: int, node_prices: Mapping[str, float]
) -> tuple[str, ...]:
    """As many of the cheapest nodes of the pool, near ones first, as the job needs beside its own for ``gpus``."""
    site = view.site
    live = [host for host in dict.fromkeys(site.job.nodes) if site.ground.offers(host, 1)]
    missing = -(-gpus // site.gpus) - len(live)
    order = sorted(columns.pool, key=lambda name: node_prices.get(name, 0.0))
    return tuple(order[: max(0, missing)])


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
        value = _value(view, rate, warm_up=True)
        promise = Promise(columns.job.id, value, stays, {POOL: takes}, len(ranks))
        yield Ask(promise, RecoveryAction.SWAP, number, len(ranks))


def _sizes(
    columns: JobColumns, number: int, action: RecoveryAction, sizes: SizeBounds, pool: frozenset[Gpu]
) -> Iterator[Ask]:
    """Options with so many GPUs, wherever; of the job's own some may be out of the pool."""
    view, job = columns.views[number], columns.job
    own = {(place.node, place.gpu) for place in view.site.job.plan.placement.ranks}
    elsewhere = len(own - view.site.lost - pool)
    best = 0.0
    for gpus, rate in zip(sizes.gpus.tolist(), sizes.tokens_per_s.tolist(), strict=True):
        if gpus <= job.gpus_at_most and rate > best:
            best = rate
            value = _value(view, rate, warm_up=action is RecoveryAction.RESHAPE)
            promise = Promise(job.id, value, frozenset(), {POOL: max(0, gpus - elsewhere)}, gpus)
            yield Ask(promise, action, number, gpus)


def _value(view: View, tokens_per_s: float, *, warm_up: bool) -> float:
    """FLOPs over the horizon less restart and repeated steps, and warm-up where the batch is the job's own."""
    site = view.site
    recovery = site.job.recovery
    restart_s = (recovery.restart_low_s + recovery.restart_high_s) / 2
    steps = view.steps_lost + (sum(WARM_UP_STEPS) / 2 if warm_up else 0.0)
    step_s = site.asked.workload.tokens_per_step / tokens_per_s
    return work_flop(site.job, tokens_per_s, restart_s + steps * step_s, site.problem.horizon_s)


def _alike(every: Sequence[JobColumns]) -> list[list[JobColumns]]:
    """Jobs that may change their shape, those together that train the same model in the same way."""
    groups: list[list[JobColumns]] = []
    for columns in every:
        if not columns.job.recovery.may_reshape:
            continue
        for group in groups:
            if not columns.job.is_paused and not group[0].job.is_paused and _same(columns, group[0]):
                group.append(columns)
                break
        else:
            groups.append([columns])
    return groups


def _same(a: JobColumns, b: JobColumns) -> bool:
    first, second = (columns.views[0].site.asked for columns in (a, b))
    return (
        first.architecture == second.architecture
        and replace(first.workload, pinned={}) == replace(second.workload, pinned={})
        and first.fitted == second.fitted
    )
