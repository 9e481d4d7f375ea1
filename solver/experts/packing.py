"""One layer of one workload: how many copies each expert gets, and on which rank each lies.

Letters: E experts, G ranks, s slots of a rank.  Shares are scaled so that balanced ranks all carry 1.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts import compiled_exact as exact
from solver.experts import compiled_packing as kernels
from solver.experts import compiled_pairs as pairs
from solver.experts.balance import FEW, HOT, annealed, heats, layer_case, slowest_load
from solver.experts.compiled_annealing import Schedule
from solver.experts.compiled_spread import spread_ranks
from solver.experts.copy_counts import greedy_counts, several_counts
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice

PAIR_HOT: Final = 0.003
"""First temperature of the search over counts, in loads of a balanced rank."""
PAIR_COOLING: Final = 0.1
"""Its last temperature beside its first."""
PAIR_STEPS: Final = 6
"""Steps of the search over counts, which are quick, for each step that is asked for."""
SPREADS: Final = 20
"""Rounds over all pairs of ranks when they are spread over nodes."""
SWAPS: Final = 50
"""Most swaps that lower the slowest rank, for each rank."""
CLOSE: Final = 1e-4
"""No search starts where the slowest rank is so near (relatively) to what is possible."""

MUCH: Final = 1e-3
"""A map that is so far (relatively) from what is possible is searched anew from other counts of copies."""
RESTARTS: Final = 3
"""Number of these starts, the best ones, that are annealed, from:"""
RESTART_HOT: Final = 0.03
EXACT: Final = 24
"""Up to so many slots all maps are looked at, as far as bounds do not rule them out."""
EXACT_NODES: Final = 500_000
"""Partial maps after which the best map met is taken unproven: about 20 ms."""


def packed_copies(shares: FloatArray, counts: IntArray, layout: ExpertLayout) -> IntArray:
    """(G, s) experts of each rank for given counts of copies; with two slots on ranks of one speed the best map."""
    copies, per_copy = np.repeat(np.arange(len(shares)), counts), shares / counts
    if layout.slots_per_rank == 2 and not _unequal(layout):
        heaviest = _heaviest_first(copies, per_copy)
        return np.asarray(pairs.paired(per_copy[heaviest], heaviest))
    return packed(copies, per_copy, layout.relative_speeds(), layout.slots_per_rank, SWAPS * layout.ranks)


def packed(copies: IntArray, per_copy: FloatArray, speeds: FloatArray, size: int, swaps: int) -> IntArray:
    """(G, size) ``copies`` (S,) of experts on ranks of ``speeds`` (G,), ``per_copy`` (E,) the load of one.

    They go, heaviest first, to the rank that stays least loaded; then at most ``swaps`` lower the slowest rank.
    """
    heaviest = _heaviest_first(copies, per_copy)
    held = kernels.packed(per_copy[heaviest], heaviest, speeds, size)
    shares = per_copy * np.bincount(copies, minlength=len(per_copy))
    kernels.swap_down(shares, held, speeds, float(shares.sum() / speeds.sum()), swaps)
    return np.asarray(held)


def _heaviest_first(copies: IntArray, per_copy: FloatArray) -> IntArray:
    return copies[np.argsort(-per_copy[copies], kind="stable")]


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
    counts = greedy_counts(shares, layout.slots, layout.ranks)
    size, copies = layout.slots_per_rank, layout.slots > len(shares)
    if size == 2 and copies:
        for hot in heats(layout, PAIR_HOT):
            schedule = Schedule(PAIR_STEPS * steps, hot, hot * PAIR_COOLING, seed)
            counts = pairs.annealed_counts(shares, counts, layout.ranks, least, schedule)
    held = packed_copies(shares, counts, layout)
    gap = _gap(shares, held, layout, least)
    # the best pairs for given counts may still be two copies of one expert, which matters where slots are few
    if gap > CLOSE and (_unequal(layout) or size > 2 or layout.slots <= FEW):
        case = layer_case(shares[None, :], [CopyChoice.ANY], layout)
        held = annealed(
            case, held, np.ones(1), steps=steps, seed=seed, hots=heats(layout, min(HOT[CopyChoice.ANY], gap))
        )
        kernels.swap_down(shares, held, layout.relative_speeds(), least, SWAPS * layout.ranks)
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
    starts.sort(key=lambda start: float(slowest_load(shares[None, :], start, layout)[0]))
    case = layer_case(shares[None, :], [CopyChoice.ANY], layout)
    for number in range(min(RESTARTS, len(starts)) if gap > MUCH else 0):
        better = annealed(
            case,
            starts[number],
            np.ones(1),
            steps=steps // RESTARTS,
            seed=seed,
            hots=(RESTART_HOT, HOT[CopyChoice.ANY]),
        )
        kernels.swap_down(shares, better, layout.relative_speeds(), least, SWAPS * layout.ranks)
        starts[number] = better
    return min((held, *starts), key=lambda each: float(slowest_load(shares[None, :], each, layout)[0]))


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
    return float(1 - least / slowest_load(shares[None, :], held, layout)[0])


def spread(shares: FloatArray, held: IntArray, layout: ExpertLayout) -> IntArray:
    """(G, s) the same ranks in an order that keeps more selections (E,) inside nodes, where ranks are alike."""
    if layout.nodes == 1 or layout.slots == len(shares) or _unequal(layout):
        return held
    return np.asarray(spread_ranks(shares, held, layout.nodes, SPREADS))


def _unequal(layout: ExpertLayout) -> bool:
    return len(set(layout.speeds)) > 1
