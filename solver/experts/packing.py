"""One layer of one workload: how many copies each expert gets, and on which rank each lies.

Letters: E experts, G ranks, s slots of a rank.  Shares are scaled so that balanced ranks all carry 1.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts import compiled_pairs as pairs
from solver.experts import compiled_slots as kernels
from solver.experts.compiled_spread import spread_ranks
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


def place_layer(shares: FloatArray, layout: ExpertLayout, least: float, steps: int, seed: int) -> IntArray:
    """(G, s) the experts of each rank.  ``least``: a load that the slowest rank cannot stay below.

    ``steps``: of each search; the same arguments give the same map.
    """
    counts = pairs.thinnest(shares, layout.slots, layout.ranks)
    size, copies = layout.slots_per_rank, layout.slots > len(shares)
    if size == 2 and copies:
        for hot in (LUMPY_HOT, PAIR_HOT) if layout.slots <= FEW else (PAIR_HOT,):
            cold = hot * PAIR_COOLING
            counts = pairs.annealed_counts(shares, counts, layout.ranks, least, PAIR_STEPS * steps, seed, hot, cold)
    held = packed_copies(shares, counts, layout)
    gap = 1 - least / slowest(shares[None, :], held, layout)[0]
    # the best pairs for given counts may still be two copies of one expert, which matters where slots are few
    if gap > CLOSE and (_unequal(layout) or size > 2 or layout.slots <= FEW):
        for hot in (LUMPY_HOT, min(SLOT_HOT, gap)) if layout.slots <= FEW else (min(SLOT_HOT, gap),):
            anneal(shares[None, :], held, layout, np.ones(1), steps, seed, hot)
        kernels.swapped_down(shares, held, layout.relative_speeds(), least, 50 * layout.ranks)
    return held


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
