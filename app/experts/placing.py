"""Where the experts of stored or given workloads should lie, and what that is worth beside the order they come in.

Letters: L layers, E experts, S slots, W workloads, C candidate maps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from app.experts.budget import Budget, budget_of
from app.experts.statistics import common_layers
from cluster_models.errors import InvalidInput
from cluster_models.expert_slots import ExpertSlots
from cluster_models.routing import RoutedWorkload
from solver.candidates import FloatArray, IntArray
from solver.experts.dispatch import LayerRates, LayerTimes, RouterRule, Routing, layer_times, routing
from solver.experts.layout import ExpertLayout
from solver.experts.loads import layer_balancedness, node_local_share
from solver.experts.nodewise import least_loads, least_times, place_nodewise
from solver.experts.place import Placed, check_alike, place_experts

_THREADS: Final = 2
_SELDOM: Final = 1e-9
"""Of the mean share: an expert that nothing selected is taken to be selected so seldom."""


@dataclass(frozen=True, slots=True)
class NodeTerms:
    """What crossing nodes costs: the router's rule, and rates; ``speed_given``: those of the links are known."""

    rule: RouterRule
    rates: LayerRates
    speed_given: bool


@dataclass(frozen=True, slots=True)
class Ask:
    """A placement that is wanted.

    ``planned``: names of the workloads to plan for; ``weights`` of each, or ``None`` for the worst of them.
    ``terms``: what crossing nodes costs, ``None`` where loads alone count.
    """

    layout: ExpertLayout
    planned: tuple[str, ...]
    weights: Mapping[str, float] | None = None
    terms: NodeTerms | None = None
    seed: int = 0
    effort: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What a map is worth for one workload, by the layers that both have (L).

    ``in_order``: the same for experts in their order, repeated to fill the slots; ``bound``: no map exceeds it.
    The three times are of this map, of the order and of the map for balance alone; ``least_s``: no map takes less.
    """

    name: str
    planned: bool
    layers: tuple[int, ...]
    balancedness: FloatArray
    in_order: FloatArray
    bound: FloatArray
    node_local_share: float
    in_order_node_local_share: float
    times: LayerTimes | None = None
    in_order_times: LayerTimes | None = None
    balanced_times: LayerTimes | None = None
    least_s: FloatArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A map; ``worth`` is the weighted mean of balancedness or that of the worst planned workload."""

    slots: ExpertSlots
    ask: Ask
    verdicts: tuple[Verdict, ...]
    worth: float
    bound: float
    budget: Budget
    left_out_layers: tuple[int, ...]


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
        effort=ask.effort,
    )
    placed = place_experts(
        chosen, ask.layout, weights=ask.weights if len(chosen) > 1 else None, steps=budget.steps, seed=ask.seed
    )
    rows = placed.rows()
    if ask.terms is not None and ask.layout.nodes > 1:
        rows = _over_nodes(chosen, placed, ask, ask.terms, budget)
    verdicts = tuple(_verdict(workload, rows, layers, placed, ask) for workload in workloads)
    counted = {layer for workload in workloads if workload.name in ask.planned for layer in workload.layers}
    return Proposal(
        slots=ExpertSlots(layers, tuple(tuple(row) for row in rows.tolist()), chosen[0].experts, ask.layout.ranks),
        ask=ask,
        verdicts=verdicts,
        worth=_worth(verdicts, ask.weights),
        bound=max(placed.bound, _worth(verdicts, ask.weights)),
        budget=budget,
        left_out_layers=tuple(sorted(counted - set(layers))),
    )


def in_order(layers: int, experts: int, slots: int) -> IntArray:
    """(L, S): experts in their order, repeated until the slots are full, as engines start without a map."""
    return np.tile(np.arange(slots) % experts, (layers, 1))


def restricted(workload: RoutedWorkload, layers: Sequence[int]) -> RoutedWorkload:
    """The workload at those of its layers; transitions stay between layers that are neighbours as before."""
    if tuple(layers) == workload.layers:
        return workload
    kept = [workload.layers.index(layer) for layer in layers]
    together = {new: workload.coactivation[old] for new, old in enumerate(kept) if old in workload.coactivation}
    return replace(
        workload, layers=tuple(layers), loads=workload.loads[kept], transitions={}, coactivation=together
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
    return [restricted(workload, layers) for workload in chosen]


def _over_nodes(
    chosen: Sequence[RoutedWorkload], placed: Placed, ask: Ask, terms: NodeTerms, budget: Budget
) -> IntArray:
    """(L, S): for each layer, of the map by loads alone and one searched over nodes, the one of the least time.

    A set is searched as one workload with the mean of their shares; the maps are compared on its members.
    """
    weights = _factors(chosen, ask.weights)
    mixed = np.tensordot(weights, np.array([workload.shares() for workload in chosen]), axes=1)
    searched = place_nodewise(
        routing(_drawable(mixed, terms.rule), terms.rule, _mixed_pairs(chosen, weights)),
        ask.layout,
        terms.rates,
        proposals=budget.proposals,
        seed=ask.seed,
        threads=_THREADS,
        speed_known=terms.speed_given,
    )
    if len(chosen) == 1 and not terms.speed_given:
        return searched.slots
    maps = np.array([searched.slots, placed.rows()])
    costs = np.array(
        [
            [layer_times(slots, _routed(one, terms), ask.layout, terms.rates).total_s for one in chosen]
            for slots in maps
        ]
    )
    judged = costs.max(axis=1) if ask.weights is None else np.tensordot(costs, weights, axes=(1, 0))
    return np.asarray(maps[np.argmin(judged, axis=0), np.arange(maps.shape[1])])


def _routed(workload: RoutedWorkload, terms: NodeTerms) -> Routing:
    return routing(_drawable(workload.shares(), terms.rule), terms.rule, workload.coactivation)


def _drawable(shares: FloatArray, rule: RouterRule) -> FloatArray:
    """Shares that a router can draw: no expert more often than each token, and none never at all."""
    most = 1.0 / rule.active
    capped = np.clip(shares, _SELDOM / shares.shape[1], most)
    room = most - capped
    missing = 1.0 - capped.sum(axis=1, keepdims=True)
    spread = np.where(missing > 0, missing * room / np.maximum(room.sum(axis=1, keepdims=True), _SELDOM), 0.0)
    filled = capped + spread
    return np.asarray(filled / filled.sum(axis=1, keepdims=True))


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


def _verdict(workload: RoutedWorkload, rows: IntArray, layers: Sequence[int], placed: Placed, ask: Ask) -> Verdict:
    """What the map is worth on a workload, at the layers that it has and the map too."""
    shared = tuple(layer for layer in layers if layer in set(workload.layers))
    if not shared:
        nothing = np.zeros(0)
        return Verdict(workload.name, False, (), nothing, nothing, nothing, 0.0, 0.0)
    positions = [layers.index(layer) for layer in shared]
    own = restricted(workload, shared)
    held = rows[positions]
    plain = in_order(len(shared), workload.experts, ask.layout.slots)
    shares = own.shares()
    reached = layer_balancedness(held, shares, ask.layout)
    planned = workload.name in ask.planned
    own_bounds = placed.layer_bounds[ask.planned.index(workload.name)] if planned else None
    bound = _bound(shares, held, ask.layout) if own_bounds is None else own_bounds
    verdict = Verdict(
        name=workload.name,
        planned=planned,
        layers=shared,
        balancedness=reached,
        in_order=layer_balancedness(plain, shares, ask.layout),
        bound=np.maximum(np.minimum(bound, 1.0), reached),
        node_local_share=node_local_share(held, shares, ask.layout),
        in_order_node_local_share=node_local_share(plain, shares, ask.layout),
    )
    if ask.terms is None or ask.layout.nodes == 1:
        return verdict
    routed = _routed(own, ask.terms)
    alone = placed.rows()[positions]
    return replace(
        verdict,
        times=layer_times(held, routed, ask.layout, ask.terms.rates),
        in_order_times=layer_times(plain, routed, ask.layout, ask.terms.rates),
        balanced_times=layer_times(alone, routed, ask.layout, ask.terms.rates),
        least_s=least_times(routed, ask.layout, ask.terms.rates, least_loads(routed, ask.layout, held)),
    )


def _bound(shares: FloatArray, held: IntArray, layout: ExpertLayout) -> FloatArray:
    """(L,) what no map exceeds in a workload that was not planned for."""
    unfitted = Routing(RouterRule(1), shares, shares, {})
    return np.asarray(1.0 / least_loads(unfitted, layout, held))


def _worth(verdicts: Sequence[Verdict], weights: Mapping[str, float] | None) -> float:
    reached = {each.name: float(each.balancedness.mean()) for each in verdicts if each.planned}
    if weights is None:
        return min(reached.values())
    return sum(weights[name] * value for name, value in reached.items()) / sum(weights.values())
