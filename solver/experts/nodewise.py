"""Which expert lies in which slot of ranks in several nodes, for the least predicted time of the layers.

Balance of the ranks alone scatters experts that tokens select together; whole groups of experts per node leave hot
nodes.  Between them: first the node of each copy, by annealing on the time of the layer (``compiled_nodewise``),
then the rank inside the node by packing.  Letters: L layers, E experts, S slots, N nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.bounds import least_slowest_load
from solver.experts.compiled_nodewise import BEYOND, anneal_nodes
from solver.experts.compiled_slots import packed, swapped_down
from solver.experts.dispatch import LayerRates, LayerTimes, Routing, layer_times, token_bytes
from solver.experts.layout import ExpertLayout
from solver.experts.loads import rank_loads

PROPOSALS: Final = 75_000
_HEATS: Final = (3e-4, 1e-2, 1e-1)
"""First temperatures of the annealing, as shares of the layer's time: the first, or in turn where slots are few."""
_MOST_FOR_LOAD: Final = 0.33
"""Most that balanced ranks cost in the search beside one more node for every token: beyond it the annealing would
shun all moves that unbalance for a while.  ``USUAL_AIM`` then sees to the balance."""
_SMALL: Final = 64
_SMALL_PROPOSALS: Final = 5_000
"""So many slots are few: one slot then changes the time by much; several short runs find more than a long one."""
_CROSSING_MEAN: Final = 0.5
"""Weight of the mean crossing of nodes beside the busiest: the search finds lower maxima with it too."""
_SWAPS: Final = 200


_USUAL_HIDDEN, _USUAL_EXPERT = 7168, 2048
_USUAL_FLOPS, _USUAL_INSIDE, _USUAL_BETWEEN = 990e12, 360e9, 6.25e9

USUAL_AIM: Final = 0.987
"""Balancedness aimed at where links are not known, near that of the published balancer when it ignores nodes."""


def usual_rates(between_bytes_per_s: float = _USUAL_BETWEEN) -> LayerRates:
    """Rates where none are given: DeepSeek-V3 on H100 with 50 Gb/s per GPU between nodes.

    FP8 products at half of the peak of 1,979 TFLOP/s, NVLink at 0.8 of 450 GB/s.  With ``USUAL_AIM``
    beside it, maps are good from 50 to 400 Gb/s (docs/experts.md).
    """
    dispatch, combine = token_bytes(_USUAL_HIDDEN)
    seconds = 6 * _USUAL_HIDDEN * _USUAL_EXPERT / _USUAL_FLOPS
    return LayerRates(seconds, dispatch, combine, between_bytes_per_s, _USUAL_INSIDE)


@dataclass(frozen=True, slots=True, eq=False)
class NodewisePlaced:
    """(L, S) ``slots``, the predicted times of the layers, and (L,) what no map can beat: seconds, balancedness."""

    slots: IntArray
    times: LayerTimes
    bound_s: FloatArray
    balancedness_bound: FloatArray


def place_nodewise(
    routed: Routing,
    layout: ExpertLayout,
    rates: LayerRates,
    *,
    proposals: int = PROPOSALS,
    seed: int = 0,
    threads: int = 1,
    aim: float = 0.0,
) -> NodewisePlaced:
    """The best map found for each layer: annealed, or a start that was better.

    ``aim``: a balancedness below which loads cost ``BEYOND`` times more than their time, for maps whose links are
    not known (``USUAL_AIM``); the times returned are without that.

    Layers are searched one by one, ``threads`` at a time; the same input, proposals and seed give the same map.
    Raises ``InvalidInput`` where the experts do not fit the layout.
    """
    layers, experts = routed.shares.shape
    layout.check(experts)
    small = layout.slots <= _SMALL
    load_price, crossing_price = search_prices(routed, layout, rates)
    most = np.inf if small else _MOST_FOR_LOAD * layout.ranks * crossing_price
    prices = min(load_price, most), crossing_price
    search_aim = max(aim, USUAL_AIM) if load_price > most else aim
    steps = min(proposals, _SMALL_PROPOSALS) if small else proposals

    def improved(job: tuple[int, IntArray, float]) -> IntArray:
        layer, start, heat = job
        case = routed.case(layer, layout, prices, _CROSSING_MEAN, search_aim)
        held = start.reshape(layout.nodes, -1).copy()
        anneal_nodes(case, held, steps, heat, seed + layer)
        return packed_inside(held, routed.shares[layer], layout)

    starts = [balanced_start(routed.shares, layout)]
    groups = routed.rule.groups
    if groups > 1 and groups % layout.nodes == 0 and layout.slots_per_rank <= experts // layout.nodes:
        starts.append(grouped_start(routed.shares, layout, groups))
    runs = [
        (start, heat) for start in (starts if small else starts[-1:]) for heat in (_HEATS if small else _HEATS[:1])
    ]
    jobs = [(layer, start[layer], heat) for start, heat in runs for layer in range(layers)]
    with ThreadPoolExecutor(threads) as pool:
        annealed = np.array(list(pool.map(improved, jobs))).reshape(len(runs), layers, -1)
    return best_of([*annealed, *starts], routed, layout, rates, aim)


def search_prices(routed: Routing, layout: ExpertLayout, rates: LayerRates) -> tuple[float, float]:
    """Seconds of the load of a rank (compute and NVLink, at balance) and of one more node for every token."""
    active, tokens = routed.rule.active, rates.tokens * layout.ranks
    inside = 0.0
    if layout.ranks_per_node > 1:
        distinct = (1.0 - 1.0 / layout.ranks) ** (active - 1)
        inside = active * distinct * tokens * rates.copy_bytes / rates.inside_bytes_per_s
    return (
        rates.selection_s * active * tokens + inside,
        rates.tokens * rates.copy_bytes / rates.between_bytes_per_s,
    )


def balanced_start(shares: FloatArray, layout: ExpertLayout) -> IntArray:
    """(L, S): the next copy to the largest load per copy, then packed onto all ranks, nodes ignored."""
    return np.array([packed_copies(row, _copies(row, layout.slots, layout.ranks), layout) for row in shares])


def grouped_start(shares: FloatArray, layout: ExpertLayout, groups: int) -> IntArray:
    """(L, S): whole groups of consecutive experts in each node, copies beside them."""
    size, capacity = shares.shape[1] // groups, layout.slots // layout.nodes
    one = np.ones(layout.nodes)
    rows = []
    for row in shares:
        loads = row.reshape(groups, size).sum(axis=1)
        heaviest = np.argsort(-loads, kind="stable")
        held = np.zeros((layout.nodes, capacity), dtype=np.int64)
        for node, chosen in enumerate(packed(loads[heaviest], heaviest, one, groups // layout.nodes)):
            members = (chosen[:, None] * size + np.arange(size)).ravel()
            counts = _copies(row[members], capacity, layout.ranks_per_node)
            held[node] = np.repeat(members, counts)
        rows.append(packed_inside(held, row, layout))
    return np.array(rows)


def _copies(loads: FloatArray, slots: int, most: int) -> IntArray:
    """(E,) copies, ``slots`` in all: each next one to the largest load per copy, at most ``most`` of an expert."""
    counts = np.ones(len(loads), dtype=np.int64)
    for _ in range(slots - len(loads)):
        counts[np.argmax(np.where(counts < most, loads / counts, -1.0))] += 1
    return counts


def packed_copies(row: FloatArray, counts: IntArray, layout: ExpertLayout) -> IntArray:
    """(S,) the copies of (E,) ``counts`` packed onto all ranks."""
    speeds = layout.relative_speeds()
    return _packed(np.repeat(np.arange(len(row)), counts), row / counts, speeds, layout.slots_per_rank)


def packed_inside(held: IntArray, row: FloatArray, layout: ExpertLayout) -> IntArray:
    """(S,) the copies (N, S / N) ``held`` by the nodes packed onto the ranks of each."""
    per_copy = row / np.maximum(np.bincount(held.ravel(), minlength=len(row)), 1)
    speeds = layout.relative_speeds().reshape(layout.nodes, -1)
    parts = [
        _packed(copies, per_copy, node_speeds, layout.slots_per_rank)
        for copies, node_speeds in zip(held, speeds, strict=True)
    ]
    return np.concatenate(parts)


def _packed(copies: IntArray, per_copy: FloatArray, speeds: FloatArray, size: int) -> IntArray:
    heaviest = copies[np.argsort(-per_copy[copies], kind="stable")]
    held = packed(per_copy[heaviest], heaviest, speeds, size)
    here = per_copy * np.bincount(copies, minlength=len(per_copy))
    swapped_down(here, held, speeds, here.sum() / speeds.sum(), _SWAPS)
    return np.asarray(held.ravel())


def best_of(
    maps: Sequence[IntArray], routed: Routing, layout: ExpertLayout, rates: LayerRates, aim: float = 0.0
) -> NodewisePlaced:
    """Of several maps, for each layer the one of the least predicted time, and of what misses the ``aim``."""
    worth = []
    for slots in maps:
        beyond = np.zeros(len(slots))
        if aim:
            slowest = rank_loads(slots, routed.shares, layout).max(axis=1)
            beyond = np.maximum(slowest - 1.0 / (layout.ranks * aim), 0.0)
        price = BEYOND * search_prices(routed, layout, rates)[0]
        worth.append(layer_times(slots, routed, layout, rates).total_s + price * beyond)
    best = np.argmin(worth, axis=0)
    slots = np.array(maps)[best, np.arange(len(best))]
    times = layer_times(slots, routed, layout, rates)
    least = least_loads(routed, layout, slots)
    return NodewisePlaced(slots, times, least_times(routed, layout, rates, least), 1.0 / least)


def least_loads(routed: Routing, layout: ExpertLayout, reached: IntArray) -> FloatArray:
    """(L,) the load of the slowest rank under every map at least, balanced ranks carrying 1."""
    scaled = routed.shares * layout.ranks
    slowest = rank_loads(reached, scaled, layout).max(axis=1)
    least = (
        least_slowest_load(row, layout, float(load), close=False) for row, load in zip(scaled, slowest, strict=True)
    )
    return np.fromiter(least, dtype=np.float64)


def least_times(routed: Routing, layout: ExpertLayout, rates: LayerRates, least: FloatArray) -> FloatArray:
    """(L,) seconds that every map of a layer takes at least (docs/experts.md).

    The slowest rank carries at least ``least``, with balanced ranks carrying 1.  Of a token's selections at most
    those of the hottest experts stay in its node; a token with one that does not is sent once at least.
    """
    compute = rates.selection_s * routed.rule.active * rates.tokens * least
    crossing = np.array([_least_crossing(row, layout) for row in routed.shares])
    return np.asarray(compute + rates.tokens * rates.copy_bytes / rates.between_bytes_per_s * crossing)


def _least_crossing(row: FloatArray, layout: ExpertLayout) -> float:
    """Least mean of nodes beside its own that a token needs: the share of selections that must leave their node.

    An expert with r copies serves at most ``min(r, N) / N`` of its selections on the spot; the copies beyond one
    help most at the hottest.
    """
    spare, nodes = layout.slots - len(row), layout.nodes
    local = row.sum() / nodes
    for share in np.sort(row)[::-1]:
        more = min(spare, nodes - 1)
        local += share * more / nodes
        spare -= more
        if not spare:
            break
    return max(0.0, float(row.sum() - local))
