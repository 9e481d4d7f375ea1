"""The search for a serving plan: a bound with the best links there are, groups placed, links as they are.

1. Price every group with the best links of its kind and solve the program: its bound holds for every placement.
2. Place the groups and price them again on the links they got.  On even networks that is the plan.
3. Where that loses more than the gap asked for, or misses a limit, solve again with groups priced by zones, whose
   links no placement in them can miss.  Groups whose reduced cost in the first program already exceeds the loss
   cannot be part of a better plan, and are left out.
4. Where the objective is a minimum, solve once more for the shortest stay among plans that cost no more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cluster_models.serving.goal import ServingObjective
from cluster_models.training.plan import StopReason
from solver.ilp import IlpStatus
from solver.problem import IsCancelled, SearchOptions
from solver.serving.planning.generation import Generated, generated
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site
from solver.serving.planning.offers import Priced, demand, offers_of, priced, priced_groups, workers_of
from solver.serving.planning.placing import place
from solver.serving.planning.pricing import worker_table
from solver.serving.planning.program import Offer, build_program, gpu_tie, read
from solver.serving.planning.settle import Settled, settle
from solver.serving.planning.solving import Solved, solve
from solver.serving.planning.ties import exact_demand, gpu_costs, is_shorter, stay_of, stay_offers
from solver.serving.planning.zones import Zone, classes_of, zones_of
from solver.serving.problem import ServingProblem

WHOLE: Final = 1e-4
"""Rounding of a bound on a number of GPUs."""
ROUNDING: Final = 1e-9
"""Share of an objective within which two are the same."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The best plan that the search saw, one entry of ``settled`` for each model, and the bound.

    ``settled`` is empty where no choice meets limits and load.  ``zones``, ``prices`` (by model) and ``offers`` are
    those of the best links.
    """

    settled: tuple[Settled, ...]
    objective: float
    bound: float
    stopped_by: StopReason
    zones: tuple[Zone, ...]
    prices: tuple[Priced, ...]
    offers: tuple[Offer, ...]


def search(problem: ServingProblem, site: Site, options: SearchOptions, is_cancelled: IsCancelled) -> Found:
    """The best plan on ``site``, which has islands."""
    started = time.perf_counter()

    def left_s() -> float:
        return options.time_limit_s - (time.perf_counter() - started)

    zones = zones_of(site, optimistic=True)
    first = [priced(model, served, site, zones, problem.goal) for model, served in enumerate(problem.models)]
    made = generated(problem, site, zones, first, options, left_s)
    prices, solved = made.prices, made.solved
    nothing = Found((), 0.0, 0.0, StopReason.PROVEN, zones, prices, made.offers)
    if solved is None or solved.outcome.status is IlpStatus.INFEASIBLE:
        return nothing
    best = replace(nothing, bound=_bound(problem, site, made), stopped_by=StopReason.WORK_LIMIT)
    best = _better(problem, site, best, zones, nothing.offers, solved)
    priced_in: tuple[Sequence[Zone], Sequence[Priced]] = zones, prices
    if not _is_proven(best, options) and left_s() > 0 and not is_cancelled():
        own_zones = zones_of(site, optimistic=False)
        own_prices = _in_zones(problem, own_zones, site, _useful(problem, best, solved))
        own = [offers_of(each, own_zones, problem.goal) for each in own_prices]
        if all(own):
            flat = tuple(offer for each in own for offer in each)
            again = _solved(problem, site, own_zones, flat, options, left_s())
            before, best = best, _better(problem, site, best, own_zones, flat, again)
            if best is not before:
                priced_in = own_zones, own_prices
    if best.settled and not problem.goal.objective.is_maximum and left_s() > 0 and not is_cancelled():
        best = _shortest(problem, site, best, priced_in, options, left_s())
    if is_cancelled():
        return replace(best, stopped_by=StopReason.CANCELLED)
    if _is_proven(best, options):
        return replace(best, stopped_by=StopReason.PROVEN)
    return best if left_s() > 0 else replace(best, stopped_by=StopReason.TIME_LIMIT)


def gap_of(objective: float, bound: float) -> float:
    """Distance of the bound as a share of the objective."""
    return abs(bound - objective) / max(abs(objective), 1e-12)


def _is_proven(found: Found, options: SearchOptions) -> bool:
    return bool(found.settled) and gap_of(found.objective, found.bound) <= options.gap


def _solved(
    problem: ServingProblem,
    site: Site,
    zones: Sequence[Zone],
    offers: Sequence[Offer],
    options: SearchOptions,
    limit_s: float,
) -> Solved:
    demands = [demand(served, problem.goal) for served in problem.models]
    program = build_program(offers, demands, zones, classes_of(site.islands, zones), problem.goal)
    return solve(program, backend=options.backend, gap=options.gap, time_limit_s=limit_s)


def _bound(problem: ServingProblem, site: Site, made: Generated) -> float:
    """Bound on every plan, in the unit of the objective."""
    assert made.solved is not None  # there are groups
    bound = min(made.solved.outcome.bound, made.beyond)
    if problem.goal.objective.is_maximum:
        return -bound + gpu_tie(made.offers) * sum(len(island.gpus) for island in site.islands)
    if problem.goal.objective is ServingObjective.GPUS:
        return float(math.ceil(bound - WHOLE))
    return bound


def _better(
    problem: ServingProblem,
    site: Site,
    best: Found,
    zones: Sequence[Zone],
    offers: Sequence[Offer],
    solved: Solved,
) -> Found:
    """``best``, or the solution placed where that is sound and better."""
    if solved.outcome.values is None:
        return best
    picked = read(solved.program, offers, solved.outcome.values)
    placed = place(picked, offers, classes_of(site.islands, zones), site)
    settled = tuple(
        settle(model, served, placed, site, problem.goal) for model, served in enumerate(problem.models)
    )
    objective = sum(each.objective for each in settled)
    gain = objective - best.objective if problem.goal.objective.is_maximum else best.objective - objective
    if not all(each.is_sound for each in settled) or (best.settled and gain <= 0):
        return best
    bound = max(best.bound, objective) if problem.goal.objective.is_maximum else min(best.bound, objective)
    return replace(best, settled=settled, objective=objective, bound=bound)


def _shortest(
    problem: ServingProblem,
    site: Site,
    best: Found,
    priced_in: tuple[Sequence[Zone], Sequence[Priced]],
    options: SearchOptions,
    limit_s: float,
) -> Found:
    """``best``, or a plan that costs no more whose requests stay shorter."""
    zones, prices = priced_in
    goal = problem.goal
    offers = [
        offer
        for each, old in zip(prices, best.settled, strict=True)
        for offer in stay_offers(each, zones, goal, stay_of(old))
    ]
    demands = [exact_demand(each) for each in prices]
    classes = classes_of(site.islands, zones)
    most = gpu_costs(offers, zones, goal), best.objective * (1 + ROUNDING)
    program = build_program(offers, demands, zones, classes, goal, most)
    solved = solve(program, backend=options.backend, gap=options.gap, time_limit_s=limit_s)
    if solved.outcome.values is None:
        return best
    placed = place(read(program, offers, solved.outcome.values), offers, classes, site)
    settled = tuple(
        settle(model, served, placed, site, goal, wanted)
        for model, (served, wanted) in enumerate(zip(problem.models, demands, strict=True))
    )
    objective = sum(each.objective for each in settled)
    is_sound = all(each.is_sound for each in settled) and objective <= most[1]
    weights = [served.weight for served in problem.models]
    if not is_sound or not is_shorter(settled, best.settled, weights):
        return best
    return replace(best, settled=settled, objective=objective)


def _useful(problem: ServingProblem, best: Found, solved: Solved) -> tuple[Group, ...]:
    """Groups that a plan better than ``best`` may have."""
    missing = math.inf
    if best.settled:
        sign = -1.0 if problem.goal.objective.is_maximum else 1.0
        missing = sign * best.objective - solved.relaxed
    return tuple(offer.group for offer, worth in zip(best.offers, solved.worth, strict=True) if worth <= missing)


def _in_zones(
    problem: ServingProblem, zones: Sequence[Zone], site: Site, groups: Sequence[Group]
) -> tuple[Priced, ...]:
    """Prices by model of ``groups`` in every zone of their speed that has room for them."""
    found = []
    for model, served in enumerate(problem.models):
        own = [
            replace(group, zone=number)
            for group in groups
            if group.model == model
            for number, zone in enumerate(zones)
            if zone.speed == group.zone and (zone.is_whole or _has_room(group, zone, site))
        ]
        found.append(priced_groups(worker_table(served, zones, workers_of(own, zones)), own, problem.goal))
    return tuple(found)


def _has_room(group: Group, zone: Zone, site: Site) -> bool:
    """Whether a group that crosses the network fits into the zone."""
    sizes = [len(site.islands[island].gpus) for island in zone.islands]
    if sum(count for _, count in group.slots) < 2:
        return False
    return all(sum(each // size for each in sizes) >= count for size, count in group.slots) and (
        sum(sizes) >= group.gpus
    )
