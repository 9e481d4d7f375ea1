"""Worth of a map of experts for one workload, beside the order that experts come in and beside bounds.

Letters: L layers, E experts, S slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.experts.wanted import Ask, NodeTerms
from cluster_models.routing.counts import RoutedWorkload
from solver.candidates import FloatArray, IntArray
from solver.experts.dispatch import LayerTimes, RouterRule, Routing, routing, times_by_choice
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, layer_balancedness, node_local_share
from solver.experts.place import Placed
from solver.experts.time_bounds import least_loads, least_times
from solver.experts.transitions import node_stay_share, stay_share

Maps = tuple[IntArray, IntArray, IntArray]
"""(L, S) each: this map, experts in their order, and the map by loads alone."""
_SELDOM: Final = 1e-9
"""Share of the mean: an expert that nothing selected is taken to be selected so seldom."""


@dataclass(frozen=True, slots=True, eq=False)
class TimesOver:
    """Predicted times over nodes: of this map under each choice of copies, and of others under the one counted.

    ``counted``: the choice that was asked for, else the one under which this map is slower.  ``least_s`` (L,): no
    map takes less under any.
    """

    counted: CopyChoice
    by_choice: Mapping[CopyChoice, LayerTimes]
    in_order: LayerTimes
    balanced: LayerTimes
    least_s: FloatArray

    @property
    def own(self) -> LayerTimes:
        """Figures of this map, under the choice counted."""
        return self.by_choice[self.counted]


@dataclass(frozen=True, slots=True)
class Stays:
    """Shares of the counted transitions that stay on their rank, and in their node."""

    on_rank: float
    in_node: float


@dataclass(frozen=True, slots=True)
class Locality:
    """Shares that stay from layer to layer with this map, in order, and with the map by loads alone."""

    own: Stays
    in_order: Stays
    balanced: Stays


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Worth of a map for one workload, by the layers that both have (L).

    ``balancedness``, ``in_order`` and ``bound`` are those under the choice of copies that counts; ``by_choice``:
    the balancedness under each.
    ``in_order``: the same for experts in their order, repeated to fill the slots; ``bound``: no map exceeds it.
    ``times``: where nodes were weighed; ``locality``: where transitions were counted and no expert has copies.
    """

    name: str
    planned: bool
    layers: tuple[int, ...]
    by_choice: Mapping[CopyChoice, FloatArray]
    balancedness: FloatArray
    in_order: FloatArray
    bound: FloatArray
    node_local_share: float
    in_order_node_local_share: float
    times: TimesOver | None = None
    locality: Locality | None = None


def verdict_of(
    workload: RoutedWorkload, rows: IntArray, placed: Placed, ask: Ask, known: Routing | None = None
) -> Verdict:
    """Worth of the map ``rows`` (L, S) for a workload, at the layers that both have.

    ``placed``: the map by loads alone of the same layers, with its bounds; ``known``: the router under the workload
    at all of them, where that was fitted before.
    """
    layers = placed.slots.layers
    shared = tuple(layer for layer in layers if layer in set(workload.layers))
    if not shared:
        nothing = np.zeros(0)
        none = dict.fromkeys(CopyChoice, nothing)
        return Verdict(workload.name, False, (), none, nothing, nothing, nothing, 0.0, 0.0)
    positions = [layers.index(layer) for layer in shared]
    own = workload.at(shared)
    held = rows[positions]
    plain = in_order(len(shared), workload.experts, ask.layout.slots)
    shares = own.shares()
    by_choice = {each: layer_balancedness(held, shares, ask.layout, each) for each in CopyChoice}
    reached = by_choice[ask.judged]
    maps = held, plain, placed.rows()[positions]
    planned = workload.name in ask.planned
    own_bounds = placed.layer_bounds[ask.planned.index(workload.name)] if planned else None
    bound = _bound(shares, held, ask) if own_bounds is None else own_bounds
    bound = np.minimum(bound, 1.0)
    if shared != layers:
        known = None
    return Verdict(
        name=workload.name,
        planned=planned,
        layers=shared,
        by_choice=by_choice,
        balancedness=reached,
        in_order=layer_balancedness(plain, shares, ask.layout, ask.judged),
        bound=np.maximum(bound, reached),
        node_local_share=node_local_share(held, shares, ask.layout),
        in_order_node_local_share=node_local_share(plain, shares, ask.layout),
        times=_times(own, maps, bound, ask, known),
        locality=_locality(own, maps, ask.layout),
    )


def in_order(layers: int, experts: int, slots: int) -> IntArray:
    """(L, S): experts in their order, repeated until the slots are full, as engines start without a map."""
    return np.tile(np.arange(slots) % experts, (layers, 1))


def routed(workload: RoutedWorkload, terms: NodeTerms) -> Routing:
    """Facts on the router under a workload; raises ``InvalidInput`` where it cannot select as counted."""
    shares = drawable(workload.shares(), terms.rule)
    terms.rule.check_shares(shares, workload.layers, f"routing.{workload.name}.loads")
    return routing(shares, terms.rule, workload.coactivation)


def drawable(shares: FloatArray, rule: RouterRule) -> FloatArray:
    """Shares that a router can draw: no expert more often than each token, and none never at all."""
    most = 1.0 / rule.active
    capped = np.clip(shares, _SELDOM / shares.shape[1], most)
    room = most - capped
    missing = 1.0 - capped.sum(axis=1, keepdims=True)
    spread = np.where(missing > 0, missing * room / np.maximum(room.sum(axis=1, keepdims=True), _SELDOM), 0.0)
    filled = capped + spread
    return np.asarray(filled / filled.sum(axis=1, keepdims=True))


def _locality(workload: RoutedWorkload, maps: Maps, layout: ExpertLayout) -> Locality | None:
    """Shares that stay; ``None`` without transitions, and with copies, of which each may serve the next layer."""
    if not any(table.any() for table in workload.transitions.values()) or layout.slots != workload.experts:
        return None

    def stays(slots: IntArray) -> Stays:
        on_rank = stay_share(slots, workload.transitions, layout)
        return Stays(on_rank, node_stay_share(slots, workload.transitions, layout))

    held, plain, alone = maps
    return Locality(stays(held), stays(plain), stays(alone))


def _times(
    workload: RoutedWorkload, maps: Maps, bound: FloatArray, ask: Ask, known: Routing | None
) -> TimesOver | None:
    """Times of this map, the order and the balanced map; ``None`` where nodes were not weighed.

    ``bound`` (L,): what the balancedness of no map exceeds under the choice of copies that counts.
    """
    terms = ask.terms
    if terms is None or ask.layout.nodes == 1:
        return None
    held, plain, alone = maps
    router = routed(workload, terms) if known is None else known

    def taken(slots: IntArray, *choices: CopyChoice) -> list[LayerTimes]:
        return times_by_choice(slots, router, ask.layout, terms.rates, choices)

    # where a router cannot draw the loads as counted, those that it can draw have a bound of their own
    alike = np.allclose(router.shares, workload.shares(), rtol=1e-9, atol=0.0)
    least = [
        1.0 / bound if alike and each is ask.judged else least_loads(router, ask.layout, held, each)
        for each in terms.choices
    ]
    by_choice = dict(zip(CopyChoice, taken(held, *CopyChoice), strict=True))
    counted = max(terms.choices, key=lambda choice: float(by_choice[choice].total_s.sum()))
    return TimesOver(
        counted=counted,
        by_choice=by_choice,
        in_order=taken(plain, counted)[0],
        balanced=taken(alone, counted)[0],
        least_s=least_times(router, ask.layout, terms.rates, np.min(least, axis=0)),
    )


def _bound(shares: FloatArray, held: IntArray, ask: Ask) -> FloatArray:
    """(L,) what no map exceeds in a workload that was not planned for."""
    unfitted = Routing(RouterRule(1), shares, shares, {})
    return np.asarray(1.0 / least_loads(unfitted, ask.layout, held, ask.judged))
