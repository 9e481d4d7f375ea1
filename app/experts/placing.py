"""Where the experts of stored or given workloads should lie, and what that is worth beside the order they come in.

Letters: L layers, E experts, S slots, W workloads, C candidate maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import numpy as np

from app.experts.budget import Budget, budget_of
from app.experts.following import placed_along
from app.experts.judging import Verdict, drawable, routed, verdict_of
from app.experts.statistics import common_layers
from app.experts.wanted import Ask, NodeTerms
from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from cluster_models.training.expert_slots import ExpertSlots
from solver.candidates import FloatArray, IntArray
from solver.experts.chains import Chained
from solver.experts.dispatch import RouterRule, Routing, routing
from solver.experts.loads import CopyChoice
from solver.experts.nodewise import place_nodewise
from solver.experts.place import Placed, check_alike, place_experts
from solver.experts.regret import least_regret, times_by_term

T = TypeVar("T")
_THREADS: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A map; ``worth`` is the weighted mean of balancedness or that of the worst planned workload.

    ``chained``: what it keeps of transitions, where these were followed.
    """

    slots: ExpertSlots
    ask: Ask
    verdicts: tuple[Verdict, ...]
    worth: float
    bound: float
    budget: Budget
    left_out_layers: tuple[int, ...]
    chained: Chained | None = None


def propose(workloads: Sequence[RoutedWorkload], ask: Ask) -> Proposal:
    """The best map found for the planned ones of ``workloads``, judged on all.  Raises ``InvalidInput``."""
    chosen = _chosen(workloads, ask)
    layers = chosen[0].layers
    ask.layout.check(chosen[0].experts)
    if ask.terms is not None:
        ask.terms.rule.check(chosen[0].experts)
    budget = budget_of(
        ask.layout,
        layers=len(layers),
        planned=len(chosen),
        judged=len(workloads),
        over_nodes=ask.terms is not None and ask.layout.nodes > 1,
        along_layers=ask.chain is not None,
        nearest=ask.choice is CopyChoice.NEAREST and ask.layout.slots > chosen[0].experts,
        effort=ask.effort,
    )
    placed = place_experts(
        chosen,
        ask.layout,
        weights=ask.weights if len(chosen) > 1 else None,
        choice=ask.judged,
        steps=budget.steps,
        seed=ask.seed,
    )
    chained = None if ask.chain is None else placed_along(chosen, ask, ask.chain)
    rows = placed.rows() if chained is None else chained.rows()
    routers: dict[str, Routing] = {}
    if ask.terms is not None and ask.layout.nodes > 1:
        routers = dict(zip(ask.planned, _each(partial(routed, terms=ask.terms), chosen), strict=True))
        rows = _over_nodes(chosen, placed, ask, ask.terms, budget, list(routers.values()))
    verdicts = tuple(
        _each(lambda workload: verdict_of(workload, rows, placed, ask, routers.get(workload.name)), workloads)
    )
    counted = {layer for workload in workloads if workload.name in ask.planned for layer in workload.layers}
    return Proposal(
        slots=ExpertSlots(layers, tuple(tuple(row) for row in rows.tolist()), chosen[0].experts, ask.layout.ranks),
        ask=ask,
        verdicts=verdicts,
        worth=_worth(verdicts, ask.weights),
        bound=max(placed.bound, _worth(verdicts, ask.weights)),
        budget=budget,
        left_out_layers=tuple(sorted(counted - set(layers))),
        chained=chained,
    )


def _chosen(workloads: Sequence[RoutedWorkload], ask: Ask) -> list[RoutedWorkload]:
    """The planned workloads at the layers that all of them have."""
    known = {workload.name: workload for workload in workloads}
    chosen = [known[name] for name in ask.planned]
    if len({workload.experts for workload in workloads}) > 1:
        check_alike(workloads)
    layers = common_layers(chosen)
    if not layers:
        raise InvalidInput("workloads", list(ask.planned), "have no layer in common", "plan for each alone")
    return [workload.at(layers) for workload in chosen]


def _each(do: Callable[[RoutedWorkload], T], workloads: Sequence[RoutedWorkload]) -> list[T]:
    """Results of ``do`` by workload: compiled loops leave the interpreter free."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(do, workloads))


def _over_nodes(
    chosen: Sequence[RoutedWorkload],
    placed: Placed,
    ask: Ask,
    terms: NodeTerms,
    budget: Budget,
    members: Sequence[Routing],
) -> IntArray:
    """(L, S): for each layer, of the map by loads alone and one searched over nodes, the one of the least time.

    A set is searched as one workload with the mean of their shares; the maps are compared on its members, under
    every choice of copies that may come.  ``members``: the router under each.
    """
    weights = _factors(chosen, ask.weights)
    searched = place_nodewise(
        members[0] if len(members) == 1 else _mixed(chosen, weights, terms.rule),
        ask.layout,
        terms.rates,
        proposals=budget.proposals,
        seed=ask.seed,
        threads=_THREADS,
        choice=terms.choice,
        speed_known=terms.speed_given,
    )
    if len(chosen) == 1 and not terms.speed_given:
        return searched.slots
    maps = np.array([searched.slots, placed.rows()])
    compared = terms.compared()
    routers = [compared.routings(one) for one in members]
    seconds = np.array([[times_by_term(slots, each, ask.layout, compared) for each in routers] for slots in maps])
    judged = seconds.max(axis=1) if ask.weights is None else np.tensordot(seconds, weights, axes=(1, 0))
    return np.asarray(maps[least_regret(judged, len(maps)), np.arange(maps.shape[1])])


def _mixed(chosen: Sequence[RoutedWorkload], weights: FloatArray, rule: RouterRule) -> Routing:
    """The router under the mean of several workloads."""
    shares = np.tensordot(weights, np.array([workload.shares() for workload in chosen]), axes=1)
    return routing(drawable(shares, rule), rule, _mixed_pairs(chosen, weights))


def _mixed_pairs(chosen: Sequence[RoutedWorkload], weights: FloatArray) -> dict[int, FloatArray]:
    """Pairs selected together at the layers where all workloads have them, each workload by its weight."""
    found = {}
    for index in set.intersection(*(set(workload.coactivation) for workload in chosen)):
        tables = [workload.coactivation[index] for workload in chosen]
        if all(table.sum() > 0 for table in tables):
            found[index] = sum(
                (weight * table / table.sum() for weight, table in zip(weights, tables, strict=True)),
                np.zeros_like(tables[0]),
            )
    return found


def _factors(chosen: Sequence[RoutedWorkload], weights: Mapping[str, float] | None) -> FloatArray:
    given = np.array([1.0 if weights is None else weights[workload.name] for workload in chosen])
    return np.asarray(given / given.sum())


def _worth(verdicts: Sequence[Verdict], weights: Mapping[str, float] | None) -> float:
    reached = {each.name: float(each.balancedness.mean()) for each in verdicts if each.planned}
    if weights is None:
        return min(reached.values())
    return sum(weights[name] * value for name, value in reached.items()) / sum(weights.values())
