"""Best-first search over degrees and placement, with a certificate.

Every candidate carries a bound, at first the optimistic price.  The candidate with the lowest bound is refined one
level further (``solver.refine``): it gets a placement, perhaps the best plan so far, and a higher bound.  The
search ends when no bound is lower than the best plan by more than the gap asked for; what it could not resolve in
its budget stays in the certificate.

The time limit holds for all of it: pricing has a share, placing ends early enough for a last look at plan and
alternatives, and that look when time is up.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.links.model import LinkModel, effective_links
from cluster_models.training.plan import NoPlan, Plan, StopReason
from cluster_models.training.workload import Choice
from solver.answer.alternatives import place_runners_up
from solver.answer.choice import MOST_GIVEN_UP, Chosen, choose
from solver.answer.conclusion import conclude
from solver.answer.remedies import no_plan
from solver.answer.survival import plan_with_losses, with_losses
from solver.answer.unmet_rules import no_plan_by_rules, none_found
from solver.degrees.legality import check_workload
from solver.degrees.priced import PricedCandidates
from solver.degrees.promising import IsTimeUp, price_fitting, price_promising
from solver.degrees.rule_filter import Kept, kept_candidates, ruled_fabrics, taken
from solver.degrees.survival_rules import surviving
from solver.ilp import OPTIMALITY_TOLERANCE
from solver.placement.cluster_fabrics import fabrics, mixed_fabrics
from solver.placement.fabric import Fabric
from solver.power_caps import plan_with_caps
from solver.problem import FINISH_S, IsCancelled, OnDraft, OnProgress, PlanningProblem, SearchOptions
from solver.refine import LEVELS, place, refine
from solver.reports import Reports
from solver.search_state import SearchState, first_state

PRICING_SHARE: Final = 0.7
"""Share of the time limit for prices; the rest places the best of them."""
LAST_SHARE: Final = 0.2
"""Share of the time limit, at most, that is kept for the last look."""
FIRST_PLANS: Final = 3
"""Candidates with the lowest bounds that are placed for a first limit."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchSpace:
    """Candidates of a problem on its fabrics with their prices, and which may keep all rules."""

    fabrics: tuple[Fabric, ...]
    priced: PricedCandidates
    kept: Kept


@dataclass(frozen=True, slots=True, eq=False)
class Searched:
    """End of a search that found a plan, and the candidate taken."""

    state: SearchState
    stopped_by: StopReason
    chosen: Chosen
    remaining_s: Callable[[], float]
    """Seconds that are left for what is told beside the plan."""


def search_space(problem: PlanningProblem, links: LinkModel) -> SearchSpace:
    """Every candidate of a problem that fits, on ``links``, which are those of the problem's snapshot.

    Raises ``InvalidInput`` where the workload contradicts the model or the cluster.
    """
    usable = _usable_fabrics(problem, links)
    return _space(problem, usable, price_fitting(problem, usable))


def promising_space(
    problem: PlanningProblem, links: LinkModel, options: SearchOptions, *, is_time_up: IsTimeUp = lambda: False
) -> SearchSpace:
    """Space that ``plan`` searches: of large ones only what may hold the best plan (``solver.degrees.promising``).

    Candidates not priced when ``is_time_up`` are counted.  Raises ``InvalidInput`` as above.
    """
    usable = _usable_fabrics(problem, links)

    def remaining_s() -> float:
        return 0.0 if is_time_up() else np.inf

    def limit_of(priced: PricedCandidates) -> float:
        """A little above the objective of a first plan, for plans as good in truth are looked for, too."""
        state = first_state(taken(priced, kept_candidates(problem, usable, priced).mask), usable)
        for _, _, index in state.fresh[:FIRST_PLANS]:
            if state.best is None or remaining_s() > 0:
                state.placed(index, place(state.prepared(problem, index), options, remaining_s=remaining_s))
        return state.best_objective * (1 + MOST_GIVEN_UP)

    priced = price_promising(problem, usable, limit_of=limit_of, is_time_up=is_time_up)
    return _space(problem, usable, priced)


def _usable_fabrics(problem: PlanningProblem, links: LinkModel) -> tuple[Fabric, ...]:
    alike = fabrics(problem.snapshot, problem.workload, links, fitted=problem.fitted)
    mixed = mixed_fabrics(problem.snapshot, problem.workload, links, fitted=problem.fitted)
    check_workload(problem, alike, mixed)
    return ruled_fabrics(problem, (*alike, *mixed))


def _space(problem: PlanningProblem, usable: tuple[Fabric, ...], priced: PricedCandidates) -> SearchSpace:
    if not (priced.excess_bytes <= 0).any():
        return SearchSpace(usable, priced, Kept(np.ones(len(priced), dtype=np.bool_), {}))
    return SearchSpace(usable, priced, kept_candidates(problem, usable, priced))


def plan(
    problem: PlanningProblem,
    options: SearchOptions,
    *,
    on_progress: OnProgress | None = None,
    on_draft: OnDraft | None = None,
    is_cancelled: IsCancelled | None = None,
) -> Plan | NoPlan:
    """The best plan found within the budget, with its certificate, or why none fits.

    ``on_draft`` gets the best plan so far now and then, without alternatives, in case the search is ended by force.
    Placement rules and shardings keep what ``workload.survive`` asks (``solver.degrees.survival_rules``).
    Raises ``InvalidInput`` where the workload contradicts the model or the cluster.  A cancelled search returns
    the best plan so far, with a certificate that says so.
    """
    if problem.workload.choose_power_caps:

        def search_one(asked: PlanningProblem, given: SearchOptions, draft: OnDraft | None) -> Plan | NoPlan:
            return plan(asked, given, on_progress=on_progress, on_draft=draft, is_cancelled=is_cancelled)

        return plan_with_caps(problem, options, search_one, on_draft, is_cancelled or (lambda: False))
    reports = Reports(surviving(problem), options, on_progress)
    if on_draft is not None:
        reports.on_draft = lambda draft: on_draft(plan_with_losses(draft, problem))
    return with_losses(_plan(reports, is_cancelled), problem)


def _plan(reports: Reports, is_cancelled: IsCancelled | None) -> Plan | NoPlan:
    problem, options, started = reports.problem, reports.options, time.monotonic()
    links = effective_links(problem.snapshot, bandwidth=problem.workload.link_bandwidth)

    def is_time_up() -> bool:
        cancelled = is_cancelled is not None and is_cancelled()
        return cancelled or time.monotonic() - started >= PRICING_SHARE * options.time_limit_s

    space = promising_space(problem, links, options, is_time_up=is_time_up)
    if not (space.priced.excess_bytes <= 0).any():
        return no_plan(problem, options, space.fabrics, space.priced)
    if not (taken(space.priced, space.kept.mask).excess_bytes <= 0).any():
        if space.priced.left.unpriced or space.priced.left.worlds:
            return none_found(problem, options, StopReason.TIME_LIMIT, unresolved=True)
        return no_plan_by_rules(problem, options, space.fabrics, space.priced, space.kept)
    spent_s = time.monotonic() - started
    found = search_within(
        problem,
        space,
        options,
        spent_s=spent_s,
        reports=reports,
        is_cancelled=is_cancelled,
        choice=problem.workload.choice,
    )
    if isinstance(found, NoPlan):
        return found
    return conclude(problem, options, found.state, found.stopped_by, found.chosen, found.remaining_s)


def search_within(
    problem: PlanningProblem,
    space: SearchSpace,
    options: SearchOptions,
    *,
    spent_s: float = 0.0,
    reports: Reports | None = None,
    is_cancelled: IsCancelled | None = None,
    choice: Choice = Choice.FASTEST,
) -> Searched | NoPlan:
    """The plan taken from a space in which some candidate fits into memory and may keep all rules.

    ``spent_s`` of the time limit are gone already; ``choice`` says which of plans as good is taken.
    """
    started = time.monotonic() - spent_s
    ends = started + options.time_limit_s
    state = first_state(taken(space.priced, space.kept.mask), space.fabrics)

    def remaining_s() -> float:
        return ends - time.monotonic()

    def searching_s() -> float:
        last_s = min((1 + options.alternatives) * state.placing_s, LAST_SHARE * options.time_limit_s)
        return remaining_s() - last_s

    def tell() -> None:
        if reports is not None:
            reports.tell(state, time.monotonic() - started)

    stopped_by = _run(problem, options, state, searching_s, tell, is_cancelled)
    if state.best is None:
        return none_found(problem, options, stopped_by, unresolved=state.unresolved > 0)
    if stopped_by is StopReason.CANCELLED:
        ends = min(ends, time.monotonic() + FINISH_S)
    place_runners_up(problem, options, state, remaining_s)
    return Searched(state, stopped_by, choose(problem, options, state, choice, remaining_s), remaining_s)


def _run(
    problem: PlanningProblem,
    options: SearchOptions,
    state: SearchState,
    remaining_s: Callable[[], float],
    tell: Callable[[], None],
    is_cancelled: IsCancelled | None,
) -> StopReason:
    """Refine candidates until nothing can beat the best plan, or the budget is gone; at least one is looked at."""

    def left_s() -> float:
        return 0.0 if is_called_off() else remaining_s()

    def is_called_off() -> bool:
        return bool(state.known) and is_cancelled is not None and is_cancelled()

    while (heap := state.next_heap(options)) is not None:
        if is_called_off():
            return StopReason.CANCELLED
        if state.known and remaining_s() <= 0:
            return StopReason.TIME_LIMIT
        _advance(problem, options, state, heap, left_s)
        tell()
    if state.is_late(state.target(options)):
        cancelled = is_cancelled is not None and is_cancelled()
        return StopReason.CANCELLED if cancelled else StopReason.TIME_LIMIT
    return StopReason.WORK_LIMIT if state.unresolved else StopReason.PROVEN


def _advance(
    problem: PlanningProblem,
    options: SearchOptions,
    state: SearchState,
    heap: list[tuple[float, int, int]],
    remaining_s: Callable[[], float],
) -> None:
    """Refine the candidate with the lowest bound of ``heap`` by one level."""
    known_bound, level, index = heapq.heappop(heap)
    started = time.monotonic()
    weight = float(state.candidates.weight[index])
    refined = refine(
        state.prepared(problem, index),
        state.known.get(index),
        level=level + 1,
        target_s=state.target(options) / weight,
        options=options,
        remaining_s=remaining_s,
    )
    state.placed(index, refined)
    if level == 0:
        state.placing_s = max(state.placing_s, time.monotonic() - started)
    bound = max(known_bound, refined.bound_s * weight)
    if bound < state.target(options) and level + 1 < LEVELS:
        heapq.heappush(state.deeper, (bound, level + 1, index))
        return
    state.open_bound = min(state.open_bound, bound)
    state.unresolved += bound < state.target(options) * (1 - OPTIMALITY_TOLERANCE)
