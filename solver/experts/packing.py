"""One layer of one workload: how many copies each expert gets, and on which rank each lies.

Letters: E experts, G ranks, s slots of a rank.  Shares are scaled so that balanced ranks all carry 1.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts import compiled_exact as exact
from solver.experts import compiled_pairs as pairs
from solver.experts import compiled_slots as kernels
from solver.experts.compiled_spread import spread_ranks
from solver.experts.copy_counts import greedy_counts, several_counts
from solver.experts.layout import ExpertLayout

PAIR_HOT: Final = 0.003
"""First temperature of the search over counts, in loads of a balanced rank."""
PAIR_STEPS: Final = 3
"""Steps of the search over counts, which are quick, for each step that is asked for."""
PAIR_COOLING: Final = 0.1
"""The last temperature of the search over counts beside the first."""
SLOT_HOT: Final = 0.003
"""Highest temperature of the search over slots, in balancedness; lower where less can be won."""
COOLING: Final = 0.03
"""Its last temperature beside its first."""
FEW: Final = 64
"""Up to so many slots, where single moves weigh much, a search from ``LUMPY_HOT`` goes before."""
LUMPY_HOT: Final = 0.05
SPREADS: Final = 20
"""Rounds over all pairs of ranks when they are spread over nodes."""
CLOSE: Final = 1e-4
"""No search starts where the slowest rank is so near (relatively) to what is possible."""

MUCH: Final = 1e-3
"""A map that is so far (relatively) from what is possible is searched anew from other counts of copies."""
RESTARTS: Final = 3
"""So many of these starts, the best ones, are annealed, from:"""
RESTART_HOT: Final = 0.03
EXACT: Final = 24
"""Up to so many slots all maps are looked at, as far as bounds do not rule them out."""
EXACT_NODES: Final = 500_000
"""Partial maps after which the best map met is taken unproven: about 20 ms."""


def packed_copies(shares: FloatArray, counts: IntArray, layout: ExpertLayout) -> IntArray:
    """(G, s) experts of each rank for given counts of copies; with two slots on ranks of one speed the best map.

    Copies go, heaviest first, to the rank that stays least loaded; then swaps lower the slowest rank.
    """
    experts = np.repeat(np.arange(len(shares)), counts)
    pieces = (shares / counts)[experts]
    order = np.argsort(-pieces, kind="stable")
    pieces, experts = pieces[order], experts[order]
    speeds = layout.relative_speeds()
    if layout.slots_per_rank == 2 and not _unequal(layout):
        return np.asarray(pairs.paired(pieces, experts))
    held = kernels.packed(pieces, experts, speeds, layout.slots_per_rank)
    kernels.swapped_down(shares, held, speeds, float(shares.sum()) / layout.ranks, 50 * layout.ranks)
    return np.asarray(held)


def place_layer(
    shares: FloatArray, layout: ExpertLayout, least: float, steps: int, seed: int
) -> tuple[IntArray, bool]:
    """(G, s) the experts of each rank, and whether no map is better.

    ``least``: a load that the slowest rank cannot stay below.  ``steps``: of each search; the same arguments give
    the same map.
    """
    held = _searched(shares, layout, least, steps, seed)
    if layout.slots_per_rank > 2 and layout.slots > len(shares):
        held = _restarted(shares, held, layout, least, steps, seed)
    if layout.slots <= EXACT and _gap(shares, held, layout, least) > 0:
        return _best_of_all(shares, held, layout, least)
    return held, False


def _searched(shares: FloatArray, layout: ExpertLayout, least: float, steps: int, seed: int) -> IntArray:
    """(G, s) from the lightest heaviest copies, by the search that suits the slots of a rank."""
    counts = pairs.thinnest(shares, layout.slots, layout.ranks)
    size, copies = layout.slots_per_rank, layout.slots > len(shares)
    if size == 2 and copies:
        for hot in (LUMPY_HOT, PAIR_HOT) if layout.slots <= FEW else (PAIR_HOT,):
            cold = hot * PAIR_COOLING
            counts = pairs.annealed_counts(shares, counts, layout.ranks, least, PAIR_STEPS * steps, seed, hot, cold)
    held = packed_copies(shares, counts, layout)
    gap = _gap(shares, held, layout, least)
    # the best pairs for given counts may still be two copies of one expert, which matters where slots are few
    if gap > CLOSE and (_unequal(layout) or size > 2 or layout.slots <= FEW):
        for hot in (LUMPY_HOT, min(SLOT_HOT, gap)) if layout.slots <= FEW else (min(SLOT_HOT, gap),):
            anneal(shares[None, :], held, layout, np.ones(1), steps, seed, hot)
        kernels.swapped_down(shares, held, layout.relative_speeds(), least, 50 * layout.ranks)
    return held


def _restarted(
    shares: FloatArray, held: IntArray, layout: ExpertLayout, least: float, steps: int, seed: int
) -> IntArray:
    """``held`` (G, s), or a better map from other counts of copies; searched anew where much is open."""
    gap = _gap(shares, held, layout, least)
    if gap <= CLOSE:
        return held
    several = several_counts(shares, layout) if gap > MUCH else [greedy_counts(shares, layout.slots, layout.ranks)]
    starts = [packed_copies(shares, counts, layout) for counts in several]
    starts.sort(key=lambda start: float(slowest(shares[None, :], start, layout)[0]))
    for start in starts[:RESTARTS] if gap > MUCH else ():
        for hot in (RESTART_HOT, SLOT_HOT):
            anneal(shares[None, :], start, layout, np.ones(1), steps // RESTARTS, seed, hot)
        kernels.swapped_down(shares, start, layout.relative_speeds(), least, 50 * layout.ranks)
    return min((held, *starts), key=lambda each: float(slowest(shares[None, :], each, layout)[0]))


def _best_of_all(shares: FloatArray, held: IntArray, layout: ExpertLayout, least: float) -> tuple[IntArray, bool]:
    """The best of all maps (G, s), beginning with ``held``, and whether that is proven; else the best one met."""
    hottest = np.argsort(-shares, kind="stable")
    place = np.empty_like(hottest)
    place[hottest] = np.arange(len(hottest))
    ordered = place[held]
    proven = exact.best_map(shares[hottest], ordered, layout.relative_speeds(), least, EXACT_NODES)
    return hottest[ordered], bool(proven)


def _gap(shares: FloatArray, held: IntArray, layout: ExpertLayout, least: float) -> float:
    """How far the slowest rank is above ``least``, as a share of its load."""
    return float(1 - least / slowest(shares[None, :], held, layout)[0])


def anneal(
    shares: FloatArray,
    held: IntArray,
    layout: ExpertLayout,
    weights: FloatArray,
    steps: int,
    seed: int,
    hot: float = SLOT_HOT,
) -> None:
    """Search from ``held`` (G, s), which changes, for the best weighted balancedness of workloads (W, E)."""
    if steps > 0:
        speeds = layout.relative_speeds()
        kernels.anneal_slots(shares, held, speeds, weights, steps, seed, hot, hot * COOLING)


def spread(shares: FloatArray, held: IntArray, layout: ExpertLayout) -> IntArray:
    """(G, s) the same ranks in an order that keeps more selections (E,) inside nodes, where ranks are alike."""
    if layout.nodes == 1 or layout.slots == len(shares) or _unequal(layout):
        return held
    return np.asarray(spread_ranks(shares, held, layout.nodes, SPREADS))


def slowest(shares: FloatArray, held: IntArray, layout: ExpertLayout) -> FloatArray:
    """(W,) the load of the slowest rank under each of the workloads ``shares`` (W, E)."""
    counts = np.bincount(held.ravel(), minlength=shares.shape[1])
    loads = (shares / counts)[:, held].sum(axis=2) / layout.relative_speeds()
    return np.asarray(loads.max(axis=1))


def _unequal(layout: ExpertLayout) -> bool:
    return len(set(layout.speeds)) > 1
