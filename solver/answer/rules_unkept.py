"""Why no plan keeps the rules asked of its nodes, and which weaker rules would leave one: each is tried first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from cluster_models.training.placement_rules import PlacementRules
from cluster_models.training.plan import NoPlan, StopReason
from solver.answer.assemble import provenance
from solver.degrees.priced import PricedCandidates
from solver.degrees.ruled import Kept, kept_candidates
from solver.placement.fabric import Fabric
from solver.placement.possible import REQUIRED, Unkept
from solver.problem import PlanningProblem, SearchOptions

R = TypeVar("R")
_NOTHING_SIMPLE: Final = ("Ask for less: fewer places, a wider label, fewer spares, or fewer rules at once.",)


def no_plan_by_rules(
    problem: PlanningProblem,
    options: SearchOptions,
    fabrics: Sequence[Fabric],
    candidates: PricedCandidates,
    kept: Kept,
) -> NoPlan:
    """The result when candidates fit into memory but counting tells that none of these keeps every rule."""
    fits = candidates.excess_bytes <= 0
    worst = sorted(kept.ruled_out.items(), key=lambda entry: -entry[1])
    parts = "; ".join(f"{_words(rule)!r} rules out {count:,}" for rule, count in worst)
    reason = (
        f"No placement keeps every rule: {int(fits.sum()):,} of {candidates.total:,} legal candidates fit into "
        f"memory, and none of them can keep what workload.placement asks ({parts} candidates, by counting places)."
    )
    remedies = tuple(_working(problem, fabrics, candidates))
    return NoPlan(reason, None, None, remedies or _NOTHING_SIMPLE, provenance(problem, options))


def none_found(
    problem: PlanningProblem, options: SearchOptions, stopped_by: StopReason, *, unresolved: bool
) -> NoPlan:
    """The result when the search ended without any placement that keeps all rules at once.

    ``unresolved``: whether candidates are left for which it is not proven that there is none.
    """
    if stopped_by in {StopReason.TIME_LIMIT, StopReason.CANCELLED}:
        reason = "The search ended before it found a placement that keeps every rule of workload.placement."
        return NoPlan(reason, None, None, ("Allow more time.", *_NOTHING_SIMPLE), provenance(problem, options))
    reason = (
        "No placement was found that keeps every rule of workload.placement; that there is none is not proven."
        if unresolved
        else "No placement keeps every rule of workload.placement: for each candidate that fits into memory an "
        "integer program proved that there is none."
    )
    return NoPlan(reason, None, None, _NOTHING_SIMPLE, provenance(problem, options))


def _words(rule: Unkept) -> str:
    return "require_nodes" if rule == REQUIRED else str(rule)


def _working(problem: PlanningProblem, fabrics: Sequence[Fabric], candidates: PricedCandidates) -> Iterator[str]:
    """Sentences of the relaxations under which counting leaves a candidate that fits."""
    for sentence, asked in _relaxations(problem.workload.placement):
        relaxed = replace(problem, workload=replace(problem.workload, placement=asked))
        kept = kept_candidates(relaxed, fabrics, candidates)
        if bool(np.any(kept.mask & (candidates.excess_bytes <= 0))):
            yield sentence


def _relaxations(asked: PlacementRules) -> Iterator[tuple[str, PlacementRules]]:
    for index, rule in enumerate(asked.spread):
        if rule.at_least is None:
            weaker = replace(rule, at_least=2)
            yield f"Ask only to {weaker}.", replace(asked, spread=_swapped(asked.spread, index, weaker))
        yield f"Do not ask to {rule}.", replace(asked, spread=_swapped(asked.spread, index))
    for index, together in enumerate(asked.keep_together):
        looser = replace(together, at_most=together.at_most + 1)
        rules = _swapped(asked.keep_together, index, looser)
        yield f"Ask only to {looser}.", replace(asked, keep_together=rules)
        yield f"Do not ask to {together}.", replace(asked, keep_together=_swapped(asked.keep_together, index))
    for index, spares in enumerate(asked.spares):
        yield f"Do not ask for {spares}.", replace(asked, spares=_swapped(asked.spares, index))
    if asked.require_nodes:
        yield "Do not require nodes.", replace(asked, require_nodes=())


def _swapped(rules: tuple[R, ...], index: int, *instead: R) -> tuple[R, ...]:
    return (*rules[:index], *instead, *rules[index + 1 :])
