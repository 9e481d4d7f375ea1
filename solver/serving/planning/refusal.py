"""Why no serving plan exists: the tightest of what stands against it, what comes nearest, and what would help."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Final

import numpy as np

from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.serving.figures import LimitedLatencies
from cluster_models.serving.goal import ServedModel, ServingGoal, ServingMode, ServingObjective
from cluster_models.serving.refusal import NearestServing, NoServingPlan, NoServingReason, Remedy, RemedyKind
from cluster_models.serving.workload import WeightFormat
from cluster_models.training.plan import Provenance
from solver.problem import SearchOptions
from solver.serving.loads import FloatArray
from solver.serving.planning.found import Found
from solver.serving.planning.islands import Site, site_of
from solver.serving.planning.offers import Priced, priced
from solver.serving.planning.reports import ServingReports
from solver.serving.planning.search import search
from solver.serving.planning.zones import Zone, zones_of
from solver.serving.problem import ServingProblem

QUICK: Final = SearchOptions(gap=0.01, time_limit_s=20.0)
"""Options of the searches for what would help."""
_TOGETHER: Final = NoServingReason.LIMITS_TOGETHER
MOST_KINDS: Final = 4
"""GPU kinds, the next faster ones and the fastest, that are tried in place of those of the cluster."""
MOST_SIZES: Final = 6
"""Numbers of nodes, from the least whose memory holds the weights, that are tried."""


def without_gpus(problem: ServingProblem, provenance: Provenance) -> NoServingPlan:
    """No node is ready, or every GPU of those that are is in use or avoided."""
    return NoServingPlan(problem.goal, problem.models, 0, NoServingReason.NO_GPUS, None, (), provenance)


def refusal_of(problem: ServingProblem, site: Site, found: Found, provenance: Provenance) -> NoServingPlan:
    """Obstacle to a plan: no group meets the limits, or those that do cannot carry the load."""
    for model, prices in enumerate(found.prices):
        if (against := obstacle(prices, found.zones)) is not None:
            remedies = (
                (*raised_limits(prices), *_other_means(problem, model))
                if prices.groups
                else _for_memory(problem, site, model)
            )
            return NoServingPlan(problem.goal, problem.models, model, *against, remedies, provenance)
    return _for_load(problem, site, found, provenance)


def obstacle(prices: Priced, zones: Sequence[Zone]) -> tuple[NoServingReason, NearestServing | None] | None:
    """Reason why no group of a model serves a request within the limits, and the nearest; ``None``: one does."""
    if not prices.groups:
        return NoServingReason.MEMORY, None
    return None if (prices.top >= 0).any() else (_tightest(prices), _nearest(prices, zones))


def _for_load(problem: ServingProblem, site: Site, found: Found, provenance: Provenance) -> NoServingPlan:
    """Largest load that the cluster keeps up with, each model alone where several share it; higher budgets."""
    budgets = tuple(_raised_budgets(problem, site))
    for model, (served, prices) in enumerate(zip(problem.models, found.prices, strict=True)):
        alone = replace(problem, models=(served,), goal=replace(problem.goal, objective=ServingObjective.GOODPUT))
        most = search(alone, site, QUICK, ServingReports(QUICK, alone.goal.objective))
        if not most.settled:
            continue
        closed = served.workload.concurrency is not None
        points = most.settled[0].most
        held = float((points.concurrency if closed else points.requests_per_s).sum())
        load = served.workload.concurrency or served.workload.requests_per_s or 0.0
        if held >= load and model + 1 < len(problem.models):
            continue
        kind = RemedyKind.CONCURRENCY if closed else RemedyKind.REQUESTS_PER_S
        gpus = sum(len(island.gpus) for island in site.islands)
        remedies = (
            *budgets,
            Remedy(kind, math.floor(held * 1e3) / 1e3),
            Remedy(RemedyKind.GPUS, float(math.ceil(gpus * load / held)), site.islands[0].gpu_kind),
        )
        nearest = _nearest(prices, found.zones)
        return NoServingPlan(
            problem.goal, problem.models, model, NoServingReason.LOAD, nearest, remedies, provenance
        )
    return NoServingPlan(problem.goal, problem.models, 0, NoServingReason.LOAD, None, budgets, provenance)


def _raised_budgets(problem: ServingProblem, site: Site) -> Iterator[Remedy]:
    """The least GPUs, or the least power, that carry the load where the goal limits them."""
    for kind, field, objective in (
        (RemedyKind.MAX_GPUS, "max_gpus", ServingObjective.GPUS),
        (RemedyKind.MAX_POWER, "max_power_watts", ServingObjective.POWER),
    ):
        if getattr(problem.goal, field) is not None:
            goal = replace(problem.goal, objective=objective, max_gpus=None, max_power_watts=None)
            found = search(replace(problem, goal=goal), site, QUICK, ServingReports(QUICK, goal.objective))
            if found.settled:
                yield Remedy(kind, found.objective)


def _tightest(prices: Priced) -> NoServingReason:
    """Which limit no group meets at any load, or both together."""
    over = prices.points.excess(prices.served.workload.limits_s).min(axis=0)
    reasons = (NoServingReason.FIRST_TOKEN_LIMIT, NoServingReason.TOKEN_LIMIT, NoServingReason.ANSWER_LIMIT)
    return next((reason for reason, least in zip(cycle(reasons), over, strict=False) if least > 1), _TOGETHER)


def _excess(prices: Priced) -> FloatArray:
    """Factor by which points (P,) miss the limit that they miss most."""
    return np.asarray(prices.points.excess(prices.served.workload.limits_s).max(axis=1))


def _nearest(prices: Priced, zones: Sequence[Zone]) -> NearestServing:
    row = int(_excess(prices).argmin())
    group, points = prices.groups[prices.points.group[row]], prices.points
    return NearestServing(
        gpu_kind=zones[group.zone].gpu.name,
        configuration=group.configuration,
        first_token_s=float(points.first_token_s[row]),
        token_s=float(points.token_s[row]),
        requests_per_s=float(points.requests_per_s[row]),
        limited_s=LimitedLatencies.of(points.limited_s[row].tolist(), prices.served.workload.class_names),
    )


def raised_limits(prices: Priced) -> Iterator[Remedy]:
    """The lowest value of each limit that can be met beside the others as they stand; else all as the nearest."""
    limits, values = prices.served.workload.limits_s, prices.points.limited_s
    misses = prices.points.excess(limits) > 1
    kinds = (RemedyKind.FIRST_TOKEN_LIMIT, RemedyKind.TOKEN_LIMIT, RemedyKind.ANSWER_LIMIT)
    names = ("", *prices.served.workload.class_names)
    for column, limit in enumerate(limits):
        others_met = ~np.delete(misses, column, axis=1).any(axis=1)
        if others_met.any() and (lowest := float(values[others_met, column].min())) > limit:
            yield Remedy(kinds[column % 3], lowest, names[column // 3])
    if (misses.sum(axis=1) > 1).all():
        yield Remedy(RemedyKind.LIMITS)


def _for_memory(problem: ServingProblem, site: Site, model: int) -> tuple[Remedy, ...]:
    """Narrower weights, GPUs with more memory, or more GPUs."""
    served = problem.models[model]
    engine = served.workload.engine
    best = max(
        (site.snapshot.cluster.gpu_kinds[island.gpu_kind] for island in site.islands),
        key=lambda kind: kind.memory_bytes,
    )
    fraction = served.workload.memory_fraction or engine.memory_fraction
    room = fraction * best.memory_bytes - engine.reserved_bytes
    weights = served.architecture.parameters() * served.workload.weights.element_bytes
    needed = math.ceil(weights / room) if room > 0 else 0
    more = (Remedy(RemedyKind.GPUS, float(gpus), best.name) for gpus in _enough(problem, served, best.name, needed))
    return (*more, *_other_means(problem, model))


def _enough(problem: ServingProblem, served: ServedModel, kind: str, needed: int) -> Iterator[int]:
    """The least GPUs of ``kind``, in whole nodes and at least ``needed``, on which some group meets the limits."""
    cluster = problem.snapshot.cluster
    node = next(node for node in cluster.nodes if node.gpu_kind == kind)
    least = max(math.ceil(needed / node.gpu_count), 1)
    for count in range(least, least + MOST_SIZES):
        nodes = tuple(replace(node, name=f"{number}", nvlink_domain=f"{number}") for number in range(count))
        larger = replace(problem.snapshot, cluster=replace(cluster, nodes=nodes), samples=())
        if _works(larger, served, replace(problem.goal, avoid_nodes=(), max_gpus=None)):
            yield count * node.gpu_count
            return


def _other_means(problem: ServingProblem, model: int) -> Iterator[Remedy]:
    """Changes that make some group meet the limits: modes, pins, formats, the next faster GPU kind."""
    served, goal, snapshot = problem.models[model], problem.goal, problem.snapshot
    if goal.modes != tuple(ServingMode) and _works(snapshot, served, replace(goal, modes=tuple(ServingMode))):
        yield Remedy(RemedyKind.MODES)
    if goal.pinned and _works(snapshot, served, replace(goal, pinned={})):
        yield Remedy(RemedyKind.PINNED)
    if served.workload.memory_fraction is not None:
        usual = replace(served, workload=replace(served.workload, memory_fraction=None))
        if _works(snapshot, usual, goal):
            yield Remedy(RemedyKind.MEMORY_FRACTION, served.workload.engine.memory_fraction)
    for weights in WeightFormat:
        workload = served.workload
        is_narrower = weights.element_bytes < workload.weights.element_bytes
        if is_narrower and weights in workload.engine.weight_formats:
            narrower = replace(served, workload=replace(workload, weights=weights))
            if _works(snapshot, narrower, goal):
                yield Remedy(RemedyKind.WEIGHTS, name=weights.value)
                break
    for name in _larger_kinds(snapshot):
        if _works(_with_kind(snapshot, name), served, goal):
            yield Remedy(RemedyKind.GPU_KIND, name=name)
            break


def _works(snapshot: ClusterSnapshot, served: ServedModel, goal: ServingGoal) -> bool:
    site = site_of(snapshot, goal)
    prices = priced(0, served, site, zones_of(site, optimistic=True), goal)
    return bool((prices.top >= 0).any())


def _larger_kinds(snapshot: ClusterSnapshot) -> list[str]:
    """Kinds of the catalogue with more memory and bandwidth than any of the cluster, the next and the fastest."""
    own = [snapshot.cluster.gpu_kinds[node.gpu_kind] for node in snapshot.cluster.nodes]
    bandwidth = max(kind.memory_bytes_per_s for kind in own)
    memory = max(kind.memory_bytes for kind in own)
    vendors = {kind.vendor for kind in own}
    better = [
        kind
        for kind in gpu_kinds().values()
        if kind.vendor in vendors and kind.memory_bytes_per_s > bandwidth and kind.memory_bytes > memory
    ]
    ranked = sorted(better, key=lambda kind: (kind.memory_bytes_per_s, kind.memory_bytes))
    return list(dict.fromkeys(kind.name for kind in (*ranked[:MOST_KINDS], *ranked[-1:])))


def _with_kind(snapshot: ClusterSnapshot, name: str) -> ClusterSnapshot:
    """The cluster with its GPUs replaced by others; what was measured does not hold for them."""
    cluster = snapshot.cluster
    nodes = tuple(replace(node, gpu_kind=name) for node in cluster.nodes)
    kinds = cluster.gpu_kinds | {name: gpu_kinds()[name]}
    return replace(snapshot, cluster=replace(cluster, nodes=nodes, gpu_kinds=kinds), samples=())
