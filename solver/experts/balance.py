"""Balance of one layer: the slowest ranks of a map, and the search of a better one from it.

Letters: W workloads, E experts, G ranks, s slots of a rank.  Shares are scaled so that balanced ranks all carry 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_annealing import Schedule
from solver.experts.compiled_balance import anneal_balance
from solver.experts.compiled_map import LayerCase
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, rank_loads

HOT: Final = {CopyChoice.ANY: 0.003, CopyChoice.NEAREST: 0.01}
"""First temperature of an annealing, in balancedness."""
COOLING: Final = 0.03
"""Last temperature of an annealing beside its first."""
FEW: Final = 64
"""Up to so many slots, where single moves weigh much, an annealing from ``LUMPY_HOT`` goes before."""
LUMPY_HOT: Final = 0.05


def heats(layout: ExpertLayout, hot: float) -> tuple[float, ...]:
    """First temperatures, in balancedness, of the annealings that follow each other."""
    return (LUMPY_HOT, hot) if layout.slots <= FEW else (hot,)


def layer_case(shares: FloatArray, choices: Sequence[CopyChoice], layout: ExpertLayout) -> LayerCase:
    """The layer as compiled code takes it: ``shares`` (W, E), each served by its own choice of copies."""
    near = np.array([choice is CopyChoice.NEAREST for choice in choices])
    return LayerCase(np.ascontiguousarray(shares), near, layout.relative_speeds(), layout.nodes)


def annealed(
    case: LayerCase,
    held: IntArray,
    weights: FloatArray,
    *,
    steps: int,
    seed: int,
    hots: Sequence[float],
    inside: bool = False,
) -> IntArray:
    """(G, s) the map found from ``held`` with the best weighted sum of balancedness, never less than it has.

    ``steps`` from each of ``hots``; ``inside``: slots are swapped inside nodes alone, so that the same tokens cross
    nodes.
    """
    rows = np.ascontiguousarray(held).copy()
    for hot in hots if steps > 0 else ():
        anneal_balance(case, rows, weights, Schedule(steps, hot, hot * COOLING, seed), inside)
    return rows


def slowest_load(
    shares: FloatArray, held: IntArray, layout: ExpertLayout, choice: CopyChoice = CopyChoice.ANY
) -> FloatArray:
    """(W,) the load of the slowest rank with (G, s) ``held`` under each of ``shares`` (W, E)."""
    rows = np.repeat(held.reshape(1, -1), len(shares), axis=0)
    return np.asarray(rank_loads(rows, shares, layout, choice).max(axis=1))
