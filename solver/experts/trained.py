"""Maps of experts for training: every expert once, equally many on each rank, for the routing that was counted.

A map is a function of the counts, the number of expert ranks and the number of NVLink domains they fill: it depends
neither on what else is planned nor on seeds, so that every candidate can be priced with the map its plan will carry
(docs/experts.md, "In a plan").  Letters: W workloads, L layers, E experts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeVar

import numpy as np

from cluster_models.model.experts import Experts
from cluster_models.routing.counts import ExpertLoads, RoutedWorkload
from solver.candidates import FloatArray, IntArray
from solver.experts.dispatch import LayerRates, LayerTimes, RouterRule, layer_times, routing
from solver.experts.grouped import grouped_orders
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, layer_balancedness
from solver.experts.nodewise import place_nodewise
from solver.experts.place import place_experts

PROPOSALS: Final = 1000
"""Proposals of the search over domains, for each layer; fewer over more than 8 domains, where each costs more."""
MOST_DOMAINS: Final = 16
"""Most domains that experts are weighed against; over more, maps are made by their loads alone, as a search
would take longer than all else."""
GAIN: Final = 1e-3
"""A layer whose time another order lowers by no more than this share keeps the natural order."""
_MEMORY: Final = 256
_FLOPS_PER_S, _BETWEEN, _INSIDE = 495e12, 50e9, 360e9
Values = TypeVar("Values", FloatArray, IntArray)


@dataclass(frozen=True, slots=True, eq=False)
class TrainedMap:
    """``rows`` (L, E): the expert in each slot of the counted ``layers``, those of a rank side by side and sorted.

    ``imbalance`` and ``contiguous`` (W, L): load of the slowest rank over the mean, with this map and in natural
    order; ``weights`` (W,) with the sum 1.  ``least`` (L,): what no map without copies undercuts, weighted.
    ``rank_copies`` and ``domain_copies`` (L,): copies of a token that the busiest rank receives where each is sent
    to a rank once, in tokens of one rank, and the busiest domain sends or receives, in tokens of one domain.
    """

    layers: tuple[int, ...]
    rows: IntArray
    weights: FloatArray
    imbalance: FloatArray
    contiguous: FloatArray
    least: FloatArray
    rank_copies: FloatArray
    domain_copies: FloatArray

    @property
    def weighted(self) -> FloatArray:
        """(L,) imbalance, weighted over the workloads."""
        return np.asarray(self.weights @ self.imbalance)

    @property
    def largest(self) -> float:
        """The largest imbalance of a layer in a workload that counts."""
        return float(self.imbalance[self.weights > 0].max())


@lru_cache(maxsize=_MEMORY)
def trained_map(
    loads: tuple[ExpertLoads, ...], experts: Experts, ranks: int, domains: int, keep_order: bool = False
) -> TrainedMap:
    """The map for ``ranks`` expert ranks that fill ``domains`` NVLink domains; experts must divide by ranks.

    Per layer the fastest of the natural order, the best balance found and, over several domains, the best trade
    between balance and copies that leave; ``keep_order`` leaves the natural order.  Routers form groups by
    position: where there are any, only orders count that keep groups together (``grouped``).
    """
    workloads = [each.counted() for each in loads]
    given = np.array([each.weight for each in loads])
    weights = given / given.sum()
    layout = ExpertLayout(ranks, domains, experts.count)
    shares = np.array([workload.shares() for workload in workloads])
    mixture = np.einsum("w,wle->le", weights, shares)
    fitted = routing(mixture, RouterRule.of(experts))
    natural = np.tile(np.arange(experts.count), (len(mixture), 1))
    balanced, least = _balanced(workloads, weights, layout, experts.router_groups)
    maps, rates = [natural], _rates(experts)
    if not keep_order:
        maps += balanced
    times = [layer_times(rows, fitted, layout, rates) for rows in maps]
    if not keep_order and 1 < domains <= MOST_DOMAINS and experts.router_groups == 1:
        proposals = PROPOSALS * 64 // max(64, domains**2)
        # without copies there is no choice among them: any is the cheaper rule
        found = place_nodewise(fitted, layout, rates, choice=CopyChoice.ANY, proposals=proposals)
        maps.append(found.slots)
        times.append(found.times)
    chosen = _fastest(maps, times, shares, weights, layout)
    rows = _picked(chosen, maps)
    rows = np.sort(rows.reshape(len(rows), ranks, -1), axis=2).reshape(rows.shape)
    inside_s = _picked(chosen, [each.inside_s for each in times])
    if layout.ranks_per_node == 1:
        inside_s = layer_times(rows, fitted, replace(layout, nodes=1), rates).inside_s
    imbalance = _imbalances(rows, shares, layout)
    return TrainedMap(
        layers=loads[0].layers,
        rows=rows,
        weights=weights,
        imbalance=imbalance,
        contiguous=_imbalances(natural, shares, layout),
        least=np.minimum(least, weights @ imbalance),
        rank_copies=inside_s * rates.inside_bytes_per_s / (rates.tokens * rates.copy_bytes),
        domain_copies=_picked(chosen, [each.busiest_crossing for each in times]),
    )


def _rates(experts: Experts) -> LayerRates:
    """Seconds of a layer for each element of its hidden width, forward and backward: only their ratios count.

    Three 16-bit products at half the peak of an H100, a token sent and returned in 16 bits, twice each; 400 Gb/s
    between nodes for each GPU, NVLink at 0.8 of 450 GB/s.
    """
    return LayerRates(18.0 * experts.hidden / _FLOPS_PER_S, 4.0, 4.0, _BETWEEN, _INSIDE)


def _balanced(
    workloads: list[RoutedWorkload], weights: FloatArray, layout: ExpertLayout, groups: int
) -> tuple[list[IntArray], FloatArray]:
    """(L, E) the best balance found for the workloads that count, and (L,) their least weighted imbalance."""
    counting = [workload for workload, weight in zip(workloads, weights, strict=True) if weight > 0]
    positive = weights[weights > 0]
    by_name = {workload.name: float(weight) for workload, weight in zip(counting, positive, strict=True)}
    several = by_name if len(counting) > 1 else None
    if groups > 1:
        found = grouped_orders(counting, several, layout, groups)
        if found is not None:
            return found[0], np.asarray(positive @ found[1])
    placed = place_experts(counting, layout, weights=several, close_bounds=False)
    return ([placed.rows()] if groups == 1 else []), np.asarray(positive @ (1.0 / placed.layer_bounds))


def _imbalances(rows: IntArray, shares: FloatArray, layout: ExpertLayout) -> FloatArray:
    """(W, L) load of the slowest rank over the mean."""
    return np.array([1.0 / layer_balancedness(rows, each, layout) for each in shares])


def _fastest(
    maps: list[IntArray], times: list[LayerTimes], shares: FloatArray, weights: FloatArray, layout: ExpertLayout
) -> IntArray:
    """(L,) which of several maps takes a layer the least time; the first where others gain little."""
    seconds = []
    for rows, each in zip(maps, times, strict=True):
        # the mixture of workloads is smoother than they are: its compute is put back to their weighted mean
        mixture = layer_balancedness(rows, np.einsum("w,wle->le", weights, shares), layout)
        apart = weights @ _imbalances(rows, shares, layout)
        seconds.append(each.compute_s * mixture * apart + each.between_s + each.inside_s)
    seconds[0] = seconds[0] * (1.0 - GAIN)
    return np.asarray(np.argmin(seconds, axis=0))


def _picked(chosen: IntArray, each: list[Values]) -> Values:
    """Rows chosen by layer from several arrays."""
    return np.asarray(np.array(each)[chosen, np.arange(len(chosen))])
