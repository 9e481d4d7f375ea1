"""Experts in the slots of ranks in several nodes, for the least predicted time of the layers.

Balance of the ranks alone scatters experts that tokens select together; whole groups of experts per node leave hot
nodes.  Between them: first the node of each copy, by annealing on the time of the layer (``compiled_nodewise``),
then the rank inside the node by packing.  Letters: L layers, E experts, S slots, N nodes.
"""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.balance import HOT, annealed, layer_case
from solver.experts.compiled_nodewise import anneal_nodes
from solver.experts.dispatch import LayerRates, LayerTimes, Routing, times_by_choice, token_bytes
from solver.experts.few import FEW, improved_few
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, rank_loads
from solver.experts.node_starts import balanced_start, grouped_start, packed_inside
from solver.experts.regret import Terms, least_regret, regrets, times_by_term
from solver.experts.time_bounds import least_loads, least_times

PROPOSALS: Final = 50_000
"""For each layer of up to four nodes; over more each costs more."""
_HEATS: Final = (1e-4, 1e-2, 1e-1)
"""First temperatures of the annealing, as shares of the layer's time: the first, or in turn where slots are few."""
_MOST_FOR_LOAD: Final = 0.33
"""Most that balanced ranks cost in the first search beside one more node for every token: beyond it the annealing
would shun all moves that unbalance for a while.  The second search goes on from there with full prices."""
_SECOND_SHARE, _SECOND_HEAT = 0.4, 1e-4
"""Share of the proposals of the second search, and its first temperature."""
_SMALL: Final = 64
_SMALL_PROPOSALS: Final = 5_000
"""So many slots are few: one slot then changes the time by much; several short runs find more than a long one."""
_CROSSING_MEAN: Final = 0.7
"""Weight of the mean crossing of nodes beside the busiest: the search finds lower maxima with it too."""
_EXCHANGES: Final = 5_000
"""Steps in which each map's slots are exchanged inside nodes, where the nearest copy serves."""
_AIMED: Final = 0.15
"""Load of nodes beyond the mean that is aimed at, beside that of ranks under the balancer that ignores nodes."""


_USUAL_HIDDEN, _USUAL_EXPERT = 7168, 2048
_USUAL_FLOPS, _USUAL_INSIDE, _USUAL_BETWEEN = 990e12, 360e9, 6.25e9


def usual_rates(between_bytes_per_s: float = _USUAL_BETWEEN) -> LayerRates:
    """Rates where none are given: DeepSeek-V3 on H100 with 50 Gb/s per GPU between nodes.

    FP8 products at half of the peak of 1,979 TFLOP/s, NVLink at 0.8 of 450 GB/s.
    """
    dispatch, combine = token_bytes(_USUAL_HIDDEN)
    seconds = 6 * _USUAL_HIDDEN * _USUAL_EXPERT / _USUAL_FLOPS
    return LayerRates(seconds, dispatch, combine, between_bytes_per_s, _USUAL_INSIDE)


@dataclass(frozen=True, slots=True, eq=False)
class NodewisePlaced:
    """(L, S) ``slots``, the predicted times of the layers, and (L,) what no map can beat: seconds, balancedness.

    ``times`` are those under the choice of copies that was asked for, else under the slower one.  The bound on
    seconds holds under every choice that may be, that on balancedness under the one asked for, else for any copy.
    """

    slots: IntArray
    times: LayerTimes
    bound_s: FloatArray
    balancedness_bound: FloatArray


def place_nodewise(
    routed: Routing,
    layout: ExpertLayout,
    rates: LayerRates,
    *,
    choice: CopyChoice | None = None,
    speed_known: bool = True,
    proposals: int | None = None,
    seed: int = 0,
    threads: int = 1,
) -> NodewisePlaced:
    """The best map found for each layer: annealed, or a start that was better.

    ``choice``: how the engine takes copies; ``None``: not known, then the worse choice counts beside what the
    better start reaches under it.  Without ``speed_known`` the speed between nodes of ``rates`` is the slowest
    that may be; faster ones count in the same way.

    Layers are searched one by one, ``threads`` at a time, with ``PROPOSALS`` each or fewer over many nodes; the
    same input, proposals and seed give the same map.
    Raises ``InvalidInput`` where the experts do not fit the layout.
    """
    layout.check(routed.shares.shape[1])
    terms = Terms.of(rates, choice, speed_known=speed_known)
    if proposals is None:
        proposals = min(PROPOSALS, PROPOSALS * 12 // (8 + layout.nodes))
    if layout.slots <= _SMALL:
        proposals = min(proposals, _SMALL_PROPOSALS)
    with ThreadPoolExecutor(threads) as pool:
        maps, seconds, references = _candidates(routed, layout, terms, proposals, seed, pool)
    slots = maps[least_regret(seconds, references), np.arange(maps.shape[1])]
    times = times_by_choice(slots, routed, layout, rates, terms.choices)
    least = {each: least_loads(routed, layout, slots, each) for each in {*terms.choices, choice or CopyChoice.ANY}}
    slower = max(times, key=lambda each: float(each.total_s.sum()))
    fewest = np.min([least[each] for each in terms.choices], axis=0)
    bound_s = least_times(routed, layout, rates, fewest)
    return NodewisePlaced(slots, slower, bound_s, 1.0 / least[choice or CopyChoice.ANY])


def _candidates(
    routed: Routing, layout: ExpertLayout, terms: Terms, proposals: int, seed: int, pool: Executor
) -> tuple[IntArray, FloatArray, int]:
    """(maps, L, S) starts and what was searched from them, (maps, K, L) their seconds, how many are published."""
    layers, small = len(routed.shares), layout.slots <= _SMALL
    starts = _starts(routed, layout)
    maps = [balanced_start(routed.shares, layout, swaps=0), *starts[1:]]
    routings = terms.routings(routed)

    def timed(slots: IntArray) -> FloatArray:
        return times_by_term(slots, routings, layout, terms)

    seconds = list(pool.map(timed, maps))
    published, references = len(maps), np.min(seconds, axis=0)
    search = _Search(routed, layout, terms, maps[0], np.array(seconds), proposals)
    searched = starts if small else starts[-1:] if routed.rule.groups > 1 else starts[:1]
    runs = [(start, heat) for start in searched for heat in (_HEATS if small else _HEATS[:1])]
    jobs = [(layer, start[layer], heat, seed) for start, heat in runs for layer in range(layers)]
    annealed = np.array(list(pool.map(search.improved, jobs))).reshape(len(runs), layers, -1)
    maps += [starts[0], *annealed]
    seconds += pool.map(timed, maps[published:])
    if CopyChoice.NEAREST in terms.choices and layout.slots > routed.shares.shape[1] and layout.ranks_per_node > 1:
        swaps = [(layer, each[layer], seed) for each in maps for layer in range(layers)]
        exchanged_maps = np.array(list(pool.map(search.exchanged, swaps))).reshape(len(maps), layers, -1)
        seconds += pool.map(timed, exchanged_maps)
        maps += [*exchanged_maps]
    if layout.slots <= FEW:
        best = np.argmin(regrets(np.array(seconds), published), axis=0)
        first = np.array(maps)[best, np.arange(layers)]
        maps.append(
            improved_few(first, references, routed, layout, terms, evaluations=proposals, seed=seed, pool=pool)
        )
        seconds.append(timed(maps[-1]))
    return np.array(maps), np.array(seconds), published


def _starts(routed: Routing, layout: ExpertLayout) -> list[IntArray]:
    """Balanced ranks, and whole groups in nodes: the router's where nodes divide them, else one for each node.

    These are what the published balancer has in its two modes, packed better.
    """
    experts, groups = routed.shares.shape[1], routed.rule.groups
    if groups % layout.nodes:
        groups = layout.nodes
    starts = [balanced_start(routed.shares, layout)]
    if experts % groups == 0 and layout.nodes > 1 and layout.slots_per_rank <= experts // layout.nodes:
        starts.append(grouped_start(routed.shares, layout, groups))
    return starts


class _Search:
    """The search of single layers, with what they have in common."""

    def __init__(
        self,
        routed: Routing,
        layout: ExpertLayout,
        terms: Terms,
        balanced: IntArray,
        seconds: FloatArray,
        proposals: int,
    ) -> None:
        self.routed, self.layout, self.terms, self.proposals = routed, layout, terms, proposals
        prices = search_prices(routed, layout, terms.rates)
        self.most = np.inf if layout.slots <= _SMALL else _MOST_FOR_LOAD * layout.ranks * prices[1]
        self.prices = prices
        self.references = _references(terms, seconds)
        even = 1.0 / layout.ranks
        self.balanced = even + _AIMED * (rank_loads(balanced, routed.shares, layout).max(axis=1) - even)

    def improved(self, job: tuple[int, IntArray, float, int]) -> IntArray:
        """(S,) the map of a layer found from a start with a first temperature."""
        layer, start, heat, seed = job
        held = start.reshape(self.layout.nodes, -1).copy()
        load_price, crossing_price, peak_price = self.prices
        aimed = 1.0 if self.terms.speed_known else float(self.balanced[layer])
        references = float(self.references[0, layer]), float(self.references[1, layer])
        second = int(_SECOND_SHARE * self.proposals) if load_price > self.most else 0
        if second:
            prices = self.most, crossing_price, peak_price
            case = self.routed.case(
                layer, self.layout, prices, _CROSSING_MEAN, references, float(self.balanced[layer])
            )
            anneal_nodes(case, held, self.proposals - second, heat, seed + layer)
            heat = _SECOND_HEAT
        case = self.routed.case(layer, self.layout, self.prices, _CROSSING_MEAN, references, aimed)
        anneal_nodes(case, held, second or self.proposals, heat, seed + layer)
        return packed_inside(held, self.routed.shares[layer], self.layout)

    def exchanged(self, job: tuple[int, IntArray, int]) -> IntArray:
        """(S,) the map of a layer after exchanges inside nodes: who serves changes, and not what crosses."""
        layer, row, seed = job
        shares = np.repeat(self.routed.shares[layer][None, :] * self.layout.ranks, len(self.terms.choices), axis=0)
        weights = np.full(len(shares), 1.0 / len(shares))
        case = layer_case(shares, self.terms.choices, self.layout)
        held = row.reshape(self.layout.ranks, -1)
        steps = min(self.proposals, _EXCHANGES)
        found = annealed(
            case, held, weights, steps=steps, seed=seed + layer, hots=(HOT[CopyChoice.NEAREST],), inside=True
        )
        return found.ravel()


def _references(terms: Terms, seconds: FloatArray) -> FloatArray:
    """(2, L) what the better start takes if copies are near, and if any serves; 0 where that does not count."""
    found = np.zeros((2, seconds.shape[2]))
    for row, choice in enumerate(CopyChoice):
        if choice in terms.choices:
            found[row] = seconds[:, terms.index(choice)].min(axis=0)
    return found


def search_prices(routed: Routing, layout: ExpertLayout, rates: LayerRates) -> tuple[float, float, float]:
    """Seconds of a rank's load (compute and NVLink, at balance), of one more node a token, of a hot copy squared.

    The rank of the hottest copy is needed by more tokens than one with the same load in equal copies: with
    selections drawn one by one a rank with copies x_i, in selections of a token, is missed with probability
    ``prod (1 - x_i)``, about ``exp(-sum x_i - sum x_i^2 / 2)``.
    """
    active, tokens = routed.rule.active, rates.tokens * layout.ranks
    inside = 0.0
    if layout.ranks_per_node > 1:
        distinct = (1.0 - 1.0 / layout.ranks) ** (active - 1)
        inside = active * distinct * tokens * rates.copy_bytes / rates.inside_bytes_per_s
    return (
        rates.selection_s * active * tokens + inside,
        rates.tokens * rates.copy_bytes / rates.between_bytes_per_s,
        inside * active / 2.0,
    )
