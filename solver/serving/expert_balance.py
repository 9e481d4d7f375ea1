"""Load of the busiest expert rank after experts are placed for counts of a router, with copies in redundant slots.

The map is the one from which the searches of ``solver.experts`` start, much like DeepSeek's EPLB without groups:
each further copy to the expert with most load a copy, the heaviest copies first to the least loaded rank.  Shapes:
L layers, E experts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from cluster_models.serving.routing import PHASES, ServedRouting
from solver.experts.copy_counts import greedy_counts
from solver.experts.packing import packed
from solver.serving.loads import FloatArray

KEPT: Final = 512


@lru_cache(maxsize=KEPT)
def routed_imbalance(routing: ServedRouting, phase: str, ranks: int, *, split: bool) -> float:
    """Excess load of the busiest of many ranks, as ``solver.serving.steps.busiest_load`` takes it.

    Such that the busiest of so many ``ranks`` has the load of the map's, the mean over layers.  ``split``: the map
    is for this phase alone, else one map serves both phases.
    """
    if ranks == 1:
        return 0.0
    own = _shares(routing, phase)
    planned = own if split else np.mean([_shares(routing, each) for each in PHASES], axis=0)
    busiest = float(np.mean(_busiest(planned, own, ranks, routing.slots(ranks))))
    return max(busiest - 1.0, 0.0) / (1.0 - 1.0 / ranks)


def _shares(routing: ServedRouting, phase: str) -> FloatArray:
    """Mean shares (L, E) of the selections in a phase."""
    return np.asarray(np.mean([each.counted().shares() for each in routing.of_phase(phase)], axis=0))


def _busiest(planned: FloatArray, own: FloatArray, ranks: int, slots: int) -> list[float]:
    """Load over the mean of the busiest rank in each layer under ``own`` shares, experts placed for ``planned``."""
    busiest = []
    for heavy, real in zip(planned, own, strict=True):
        counts = greedy_counts(heavy, min(slots, ranks * len(heavy)), ranks)
        copies = np.repeat(np.arange(len(counts)), counts)
        held = packed(copies, heavy / counts, np.ones(ranks), len(copies) // ranks, swaps=0)
        busiest.append(ranks * float((real / counts)[held].sum(axis=1).max()))
    return busiest
