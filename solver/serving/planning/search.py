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
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cluster_models.serving.goal import ServingMode, ServingObjective
from cluster_models.training.plan import StopReason
from solver.ilp import IlpStatus
from solver.problem import SearchOptions
from solver.serving.planning.found import Found
from solver.serving.planning.generation import Generated, generated
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site
from solver.serving.planning.offers import (
    Priced,
    demand,
    nothing_priced,
    offers_of,
    priced,
    priced_groups,
    workers_of,
)
from solver.serving.planning.placing import PlacedGroup, place
from solver.serving.planning.pricing import worker_table
from solver.serving.planning.program import Offer, build_program, gpu_tie, read
from solver.serving.planning.reports import ServingReports
from solver.serving.planning.settle import settle
from solver.serving.planning.solving import Solved, solve
from solver.serving.planning.ties import exact_demand, gpu_costs, is_shorter, stay_of, stay_offers
from solver.serving.planning.zones import Zone, classes_of, zones_of
from solver.serving.problem import ServingProblem

COUNTED: Final = (ServingObjective.GPUS, ServingObjective.COST, ServingObjective.POWER)
"""Objectives that leave many plans as good as each other."""
WHOLE: Final = 1e-4
"""Rounding of a bound on a number of GPUs."""
ROUNDING: Final = 1e-9
"""Share of an objective within which two are the same."""


def search(problem: ServingProblem, site: Site, options: SearchOptions, reports: ServingReports) -> Found:
    """The best plan on ``site``, which has islands."""
    zones = zones_of(site, optimistic=True, splits=_may_split(problem))
    first = []
    for model, served in enumerate(problem.models):
        first.append(priced(model, served, site, zones, problem.goal))
        reports.tell("pricing", sum(len(each.groups) for each in first))

    def settled(made: Generated) -> Found:
        return reports.draft(_found(problem, site, zones, made))

    made = generated(problem, site, zones, first, options, reports, settled)
    best = settled(made)
    if made.solved is None or made.solved.outcome.status is IlpStatus.INFEASIBLE:
        return _ended(replace(best, stopped_by=StopReason.PROVEN), options, reports)
    priced_in: tuple[Sequence[Zone], Sequence[Priced]] = zones, made.prices
    if not _is_proven(best, options) and reports.left_s() > 0:
        best, priced_in = _better_in_zones(problem, site, best, made.solved, priced_in, options, reports.left_s())
    if best.settled and problem.goal.objective in COUNTED and reports.left_s() > 0:
        best = _shortest(problem, site, best, priced_in, options, reports.left_s())
    reports.settle(best)
    return _ended(best, options, reports)


def _may_split(problem: ServingProblem) -> bool:
    """Whether prefill and decode may have replicas, and power caps, of their own."""
    return ServingMode.SPLIT in problem.goal.modes


def _ended(best: Found, options: SearchOptions, reports: ServingReports) -> Found:
    """``best`` with what ended the search, which says so itself where nothing from outside did."""
    if reports.is_cancelled():
        return replace(best, stopped_by=StopReason.CANCELLED)
    if _is_proven(best, options):
        return replace(best, stopped_by=StopReason.PROVEN)
    return best if reports.left_s() > 0 else replace(best, stopped_by=StopReason.TIME_LIMIT)


def _found(problem: ServingProblem, site: Site, zones: tuple[Zone, ...], made: Generated) -> Found:
    """The choice placed, with nothing settled where there is none that is sound."""
    unknown = math.inf if problem.goal.objective.is_maximum else -math.inf
    nothing = Found((), 0.0, unknown, StopReason.WORK_LIMIT, zones, made.prices, made.offers)
    if made.solved is None or made.solved.outcome.status is IlpStatus.INFEASIBLE:
        return nothing
    best = replace(nothing, bound=_bound(problem, site, made))
    return _better(problem, site, best, zones, made.offers, made.solved)


def _is_proven(found: Found, options: SearchOptions) -> bool:
    return bool(found.settled) and found.gap <= options.gap


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
        return float(math.ceil(bound - WHOLE)) if math.isfinite(bound) else bound
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
    if not _serves_all(problem, placed):
        return best
    settled = tuple(
        settle(model, served, placed, site, problem.goal) for model, served in enumerate(problem.models)
    )
    objective = sum(each.objective for each in settled)
    gain = objective - best.objective if problem.goal.objective.is_maximum else best.objective - objective
    if not all(each.is_sound for each in settled) or (best.settled and gain <= 0):
        return best
    bound = max(best.bound, objective) if problem.goal.objective.is_maximum else min(best.bound, objective)
    return replace(best, settled=settled, objective=objective, bound=bound)


def _serves_all(problem: ServingProblem, placed: Sequence[PlacedGroup]) -> bool:
    """Whether every model has a group: a load that solvers take for none needs one all the same."""
    return len({each.group.model for each in placed}) == len(problem.models)


def _better_in_zones(
    problem: ServingProblem,
    site: Site,
    best: Found,
    solved: Solved,
    priced_in: tuple[Sequence[Zone], Sequence[Priced]],
    options: SearchOptions,
    limit_s: float,
) -> tuple[Found, tuple[Sequence[Zone], Sequence[Priced]]]:
    """``best``, or a better plan of groups priced by zones whose links no placement misses; and what priced it."""
    zones = zones_of(site, optimistic=False, splits=_may_split(problem))
    prices = _in_zones(problem, zones, site, _useful(problem, best, solved))
    own = [offers_of(each, zones, problem.goal) for each in prices]
    if not all(own):
        return best, priced_in
    flat = tuple(offer for each in own for offer in each)
    found = _better(problem, site, best, zones, flat, _solved(problem, site, zones, flat, options, limit_s))
    return (best, priced_in) if found is best else (found, (zones, prices))


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
    if not _serves_all(problem, placed):
        return best
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
        if own:
            found.append(priced_groups(worker_table(served, zones, workers_of(own, zones)), own, problem.goal))
        else:  # no group can make the plan better
            found.append(nothing_priced(served))
    return tuple(found)


def _has_room(group: Group, zone: Zone, site: Site) -> bool:
    """Whether a group that crosses the network fits into the zone."""
    sizes = [len(site.islands[island].gpus) for island in zone.islands]
    if sum(count for _, count in group.slots) < 2:
        return False
    return all(sum(each // size for each in sizes) >= count for size, count in group.slots) and (
        sum(sizes) >= group.gpus
    )
