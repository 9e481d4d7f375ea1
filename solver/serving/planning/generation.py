"""The program over every split group there is, by column generation (docs/serving.md, the program)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.serving.goal import ServingObjective
from solver.ilp import IlpStatus
from solver.problem import DRAFT_SHARE, SearchOptions
from solver.serving.planning.columns import Unpriced, groups_below, least_cost, unpriced_of
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site
from solver.serving.planning.offers import Priced, demand, offers_of, priced_groups, with_more
from solver.serving.planning.program import Duals, Offer, Program, build_program, duals_of
from solver.serving.planning.reports import ServingReports
from solver.serving.planning.solving import Solved, relaxation, solve
from solver.serving.planning.zones import Zone, classes_of
from solver.serving.problem import ServingProblem

AT_ONCE: Final = 150
"""Groups of a model that are priced between two relaxations."""
AFTERWARDS: Final = 600
"""Groups of a model that are priced because they may be in a better choice than the one found."""
HALVINGS: Final = 12
"""Halvings of the price of a GPU at which no group pays."""
NEGATIVE: Final = 1e-6
"""Share of the relaxation by which a reduced cost must lie below 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Generated:
    """Groups priced, their offers, and the choice; ``solved`` is ``None`` where no group of some model serves.

    ``beyond``: the least that a choice with any other group costs.
    """

    prices: tuple[Priced, ...]
    offers: tuple[Offer, ...]
    solved: Solved | None
    beyond: float


@dataclass(slots=True)
class _Columns:
    """Groups priced so far, and those that are not."""

    problem: ServingProblem
    site: Site
    zones: Sequence[Zone]
    prices: list[Priced]
    offers: list[Offer]
    unpriced: tuple[Unpriced, ...]
    done: set[Group]
    least: float = math.inf
    left: float = math.inf
    floor: float = -math.inf

    @property
    def lacking(self) -> bool:
        """Whether no group of some model serves."""
        return len({offer.group.model for offer in self.offers}) < len(self.prices)

    def program(self, *, whole: bool) -> Program:
        """The program of the offers; not ``whole``: with a row for every part that a further group may take."""
        demands = [demand(served, self.problem.goal) for served in self.problem.models]
        classes = classes_of(self.site.islands, self.zones)
        sizes = set() if whole else {(each.zone, size) for each in self.unpriced for size in each.sizes}
        return build_program(self.offers, demands, self.zones, classes, self.problem.goal, sizes=sizes)

    def add(self, duals: Duals, below: float, most: int) -> bool:
        """Whether groups were found whose reduced cost may lie below ``below``; they are priced.

        ``least`` becomes the least bound on a reduced cost that was found, ``left`` that of those still not priced.
        """
        goal, is_new = self.problem.goal, False
        self.least = self.left = math.inf
        for each in self.unpriced:
            groups, least, left = groups_below(each, duals, goal, self.done, below, most)
            self.least, self.left = min(self.least, least), min(self.left, left)
            if groups:
                is_new = True
                self.done.update(groups)
                table = self.prices[each.model].table
                assert table is not None  # there are workers
                more = priced_groups(table, groups, goal)
                self.prices[each.model] = with_more(self.prices[each.model], more)
                self.offers += offers_of(more, self.zones, goal)
        return is_new

    def beyond(self) -> float:
        """A bound on the cost of every choice with a group that is not priced, where ``floor`` is known at most."""
        return max(self.floor, self.loosest()) if self.unpriced else math.inf

    def loosest(self) -> float:
        """A bound on the cost of every choice without a relaxation: as much for each GPU as the best group has."""
        worth = max((-float(offer.costs.min()) / offer.group.gpus for offer in self.offers), default=0.0)
        low, high = max(0.0, worth), max(0.0, worth, -self._least_cost(0.0))
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self._least_cost(middle) >= 0.0 else (middle, high)
        return -high * sum(len(island.gpus) for island in self.site.islands)

    def _least_cost(self, gpu: float) -> float:
        """The least cost of a group that is not priced, with ``gpu`` for each of its GPUs."""
        duals = replace(_duals(self, demand=0.0), gpus=-gpu)
        return min(least_cost(each, duals, self.problem.goal) for each in self.unpriced)


def generated(
    problem: ServingProblem,
    site: Site,
    zones: Sequence[Zone],
    prices: Sequence[Priced],
    options: SearchOptions,
    reports: ServingReports,
    draft: Callable[[Generated], object],
) -> Generated:
    """The best choice among all groups; ``prices`` are of those tried first, in ``zones`` of the best links.

    ``draft`` gets the choice among the groups priced until then, whenever one is due.
    """
    goal = problem.goal
    columns = _Columns(
        problem,
        site,
        zones,
        list(prices),
        [offer for each in prices for offer in offers_of(each, zones, goal)],
        tuple(each for model, own in enumerate(prices) for each in unpriced_of(model, own, site, zones, goal)),
        {group for each in prices for group in each.groups},
    )
    step = 1.0 if goal.objective is ServingObjective.GPUS else 0.0
    left_s = reports.left_s
    # half of the time is for the choice among the groups that are known by then
    half_s = 0.5 * left_s()

    def tell() -> None:
        reports.tell("pricing", sum(len(each.groups) for each in columns.prices))
        if reports.is_due() and not columns.lacking:
            ends_s = max(half_s, left_s() - DRAFT_SHARE * options.time_limit_s)
            solved = _solved(columns, options, lambda: left_s() - ends_s, step)
            draft(Generated(tuple(columns.prices), tuple(columns.offers), solved, columns.beyond()))

    duals = _converged(columns, lambda: left_s() - half_s, tell)
    if columns.lacking:
        return Generated(tuple(columns.prices), tuple(columns.offers), None, math.inf)
    solved = _solved(columns, options, reports.last_s, step)
    beyond = math.inf if duals is not None else columns.beyond()
    if duals is not None and _may_be_better(solved, step, options):
        missing = solved.outcome.objective - step - solved.relaxed
        if left_s() <= 0:
            beyond = solved.relaxed
        elif columns.add(duals, missing, AFTERWARDS):
            beyond = solved.relaxed + columns.left
            solved = _solved(columns, options, reports.last_s, step)
    return Generated(tuple(columns.prices), tuple(columns.offers), solved, beyond)


def _may_be_better(solved: Solved, step: float, options: SearchOptions) -> bool:
    """Whether another choice may be better by more than the gap asked for."""
    outcome = solved.outcome
    if outcome.values is None:
        return outcome.status is IlpStatus.INFEASIBLE
    return outcome.objective - step - solved.relaxed > (0.0 if step else options.gap * abs(outcome.objective))


def _solved(columns: _Columns, options: SearchOptions, left_s: Callable[[], float], step: float) -> Solved:
    program = columns.program(whole=True)
    return solve(program, backend=options.backend, gap=options.gap, time_limit_s=left_s(), step=step)


def _converged(columns: _Columns, left_s: Callable[[], float], tell: Callable[[], None]) -> Duals | None:
    """Duals of the relaxation, all groups priced that would lower it; ``None`` where there are none.

    ``columns.floor`` becomes the relaxation's value over all groups, or what is known of it when the time is over:
    each of the groups in a choice lowers it by no more than the least reduced cost.
    """
    if not columns.unpriced:
        return None
    most = sum(len(island.gpus) for island in columns.site.islands) / 2
    is_first = True
    while left_s() > 0:
        tell()
        outcome = None
        if not columns.lacking:
            program = columns.program(whole=False)
            outcome, _ = relaxation(program, left_s)
            if left_s() <= 0:
                return None
        if outcome is None or outcome.duals is None:
            if not is_first or (outcome is not None and outcome.status is not IlpStatus.INFEASIBLE):
                return None
            columns.add(_duals(columns, demand=1.0), math.inf, AFTERWARDS)
            is_first = False
            continue
        duals = duals_of(program, outcome.duals, columns.offers)
        is_new = columns.add(duals, -NEGATIVE * max(1.0, abs(outcome.objective)), AT_ONCE)
        columns.floor = max(columns.floor, outcome.objective + most * min(columns.least, 0.0))
        if not is_new:
            return duals
    return None


def _duals(columns: _Columns, *, demand: float) -> Duals:
    """Duals of nothing but demands; with some, the groups that answer most for their GPUs come first."""
    sizes = 1 + max(size for each in columns.unpriced for size in each.sizes)
    parts = {each.zone: np.zeros(sizes) for each in columns.unpriced}
    return Duals(np.full(len(columns.problem.models), demand), parts, 0.0, 0.0, 0.0)
