"""Load of the busiest expert rank after experts are placed for counts of a router, with copies in redundant slots.

Copies go to the expert with most load for each copy, and copies, the heaviest first, to the rank with least load
that has a slot (DeepSeek's EPLB without groups); the searches of ``solver.experts`` do no worse.  Shapes: L layers,
E experts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from cluster_models.serving.routing import PHASES, ServedRouting
from solver.candidates import IntArray
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
    busiest = float(_busiest(planned, own, ranks, routing.slots(ranks)).mean())
    return max(busiest - 1.0, 0.0) / (1.0 - 1.0 / ranks)


def _shares(routing: ServedRouting, phase: str) -> FloatArray:
    """Mean shares (L, E) of the selections in a phase."""
    return np.asarray(np.mean([each.counted().shares() for each in routing.of_phase(phase)], axis=0))


def _busiest(planned: FloatArray, own: FloatArray, ranks: int, slots: int) -> FloatArray:
    """Load over the mean (L,) of the busiest rank under ``own`` shares, experts placed for those ``planned``."""
    copies = _copies(planned, slots)
    rows = np.arange(len(planned))
    each = np.stack([np.repeat(np.arange(planned.shape[1]), own) for own in copies])
    order = np.argsort(-(planned / copies)[rows[:, np.newaxis], each], axis=1, kind="stable")
    each = np.take_along_axis(each, order, axis=1)
    heavy, real = ((shares / copies)[rows[:, np.newaxis], each] for shares in (planned, own))
    load, met = np.zeros((len(planned), ranks)), np.zeros((len(planned), ranks))
    room = np.full((len(planned), ranks), slots // ranks)
    for slot in range(slots):
        rank = np.where(room > 0, load, np.inf).argmin(axis=1)
        load[rows, rank] += heavy[:, slot]
        met[rows, rank] += real[:, slot]
        room[rows, rank] -= 1
    return np.asarray(met.max(axis=1) * ranks)


def _copies(shares: FloatArray, slots: int) -> IntArray:
    """Copies (L, E) of each expert, as many as there are slots."""
    copies = np.ones(shares.shape, dtype=np.int64)
    rows = np.arange(len(shares))
    for _ in range(slots - shares.shape[1]):
        copies[rows, (shares / copies).argmax(axis=1)] += 1
    return copies
