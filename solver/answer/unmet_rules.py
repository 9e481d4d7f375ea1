"""Why no plan keeps the rules asked of its nodes, and which weaker rules would leave one: each is tried first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import numpy as np

from cluster_models.remarks import Remark, remark
from cluster_models.training.placement_rules import KeepTogether, PlacementRules, Spread
from cluster_models.training.plan import NoPlan, StopReason
from solver.answer.assemble import provenance
from solver.degrees.priced import PricedCandidates
from solver.degrees.rule_filter import Kept, kept_candidates
from solver.placement.fabric import Fabric
from solver.placement.rule_counting import REQUIRED, Unkept
from solver.problem import PlanningProblem, SearchOptions

R = TypeVar("R")
_NOTHING_SIMPLE: Final = (remark("ask_for_less"),)


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
    reason = remark(
        "rules_by_counting",
        fitting=int(fits.sum()),
        candidates=candidates.total,
        rules=tuple(_words(rule) for rule, _ in worst),
        ruled_out=tuple(count for _, count in worst),
    )
    remedies = tuple(_working(problem, fabrics, candidates))
    return NoPlan((reason,), None, None, remedies or _NOTHING_SIMPLE, provenance(problem, options))


def none_found(
    problem: PlanningProblem, options: SearchOptions, stopped_by: StopReason, *, unresolved: bool
) -> NoPlan:
    """The result when the search ended without any placement that keeps all rules at once.

    ``unresolved``: whether candidates are left for which it is not proven that there is none.
    """
    if stopped_by in {StopReason.TIME_LIMIT, StopReason.CANCELLED}:
        ended = (remark("rules_search_ended"),)
        remedies = (remark("allow_time"), *_NOTHING_SIMPLE)
        return NoPlan(ended, None, None, remedies, provenance(problem, options))
    reason = remark("rules_not_found" if unresolved else "rules_proven_impossible")
    return NoPlan((reason,), None, None, _NOTHING_SIMPLE, provenance(problem, options))


def _words(rule: Unkept) -> str:
    return "require_nodes" if rule == REQUIRED else str(rule)


def _working(problem: PlanningProblem, fabrics: Sequence[Fabric], candidates: PricedCandidates) -> Iterator[Remark]:
    """The relaxations under which counting leaves a candidate that fits."""
    for remedy, asked in _relaxations(problem.workload.placement):
        relaxed = replace(problem, workload=replace(problem.workload, placement=asked))
        kept = kept_candidates(relaxed, fabrics, candidates)
        if bool(np.any(kept.mask & (candidates.excess_bytes <= 0))):
            yield remedy


def _relaxations(asked: PlacementRules) -> Iterator[tuple[Remark, PlacementRules]]:
    for index, rule in enumerate(asked.spread):
        if rule.at_least is None:
            weaker = replace(rule, at_least=2)
            yield _only(weaker), replace(asked, spread=_swapped(asked.spread, index, weaker))
        yield _drop(rule), replace(asked, spread=_swapped(asked.spread, index))
    for index, together in enumerate(asked.keep_together):
        looser = replace(together, at_most=together.at_most + 1)
        yield _only(looser), replace(asked, keep_together=_swapped(asked.keep_together, index, looser))
        yield _drop(together), replace(asked, keep_together=_swapped(asked.keep_together, index))
    for index, spares in enumerate(asked.spares):
        yield remark("drop_spares", spares=str(spares)), replace(asked, spares=_swapped(asked.spares, index))
    if asked.require_nodes:
        yield remark("require_no_nodes"), replace(asked, require_nodes=())


def _only(rule: Spread | KeepTogether) -> Remark:
    return remark("weaken_rule", rule=str(rule))


def _drop(rule: Spread | KeepTogether) -> Remark:
    return remark("drop_rule", rule=str(rule))


def _swapped(rules: tuple[R, ...], index: int, *instead: R) -> tuple[R, ...]:
    return (*rules[:index], *instead, *rules[index + 1 :])
