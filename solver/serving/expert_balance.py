"""Experts placed for counts of a router: the load of the busiest expert rank, and the nodes that tokens need.

The map is the one from which the searches of ``solver.experts`` start, much like DeepSeek's EPLB without groups:
each further copy to the expert with most load a copy, the heaviest copies first to the least loaded rank.  Shapes:
L layers, E experts, S slots.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from cluster_models.serving.routing import PHASES, ServedRouting
from solver.candidates import IntArray
from solver.experts.copy_counts import greedy_counts
from solver.experts.dispatch import RouterRule, Routing, needs_of, routing
from solver.experts.packing import packed
from solver.serving.loads import FloatArray

KEPT: Final = 512


@lru_cache(maxsize=KEPT)
def routed_imbalance(counts: ServedRouting, phase: str, ranks: int, *, split: bool) -> float:
    """Excess load of the busiest of many ranks, as ``solver.serving.steps.busiest_load`` takes it.

    Such that the busiest of so many ``ranks`` has the load of the map's, the mean over layers.  ``split``: the map
    is for this phase alone, else one map serves both phases.
    """
    if ranks == 1:
        return 0.0
    slots = _map(counts, phase if split else "", ranks)
    met = [
        (own / np.bincount(row, minlength=len(own)))[row].reshape(ranks, -1).sum(axis=1).max()
        for own, row in zip(_shares(counts, phase), slots, strict=True)
    ]
    return max(ranks * float(np.mean(met)) - 1.0, 0.0) / (1.0 - 1.0 / ranks)


@lru_cache(maxsize=KEPT)
def routed_crossing(
    counts: ServedRouting, rule: RouterRule, phase: str, groups: int, gpus: tuple[int, int], *, split: bool
) -> float:
    """Other nodes that a token of a GPU needs on the busiest node, sending or receiving, the mean over layers.

    ``gpus``: of a stage and of a node, which the stage fills in order; each of ``groups`` of expert ranks has its
    share of the stage, on as many nodes as that reaches.  A token goes to all ranks of its experts' groups; copies
    serve alike.
    """
    stage, node = gpus
    first, last = (np.arange(groups) + step for step in (0, 1))
    starts = np.arange(0, stage, node)
    sizes = np.minimum(starts + node, stage) - starts
    reaches = (first[:, np.newaxis] * stage < (starts + sizes) * groups) & (
        last[:, np.newaxis] * stage > starts * groups
    )
    routed, slots = _router(counts, rule, phase), _map(counts, phase if split else "", groups)
    found = []
    for layer, row in enumerate(slots):
        copies = np.bincount(row, minlength=routed.shares.shape[1])
        served = np.zeros((len(copies), 1, len(starts)))
        np.add.at(served[:, 0], row, np.repeat(reaches, len(row) // groups, axis=0) / copies[row, np.newaxis])
        needs = needs_of(routed, layer, np.minimum(served, 1.0))
        found.append(max((needs.sum() - needs).max(), (needs * (stage - sizes) / sizes).max()))
    return float(np.mean(found))


@lru_cache(maxsize=KEPT)
def _router(counts: ServedRouting, rule: RouterRule, phase: str) -> Routing:
    return routing(_shares(counts, phase), rule)


def _shares(counts: ServedRouting, phase: str) -> FloatArray:
    """Mean shares (L, E) of the selections in a phase."""
    return np.asarray(np.mean([each.counted().shares() for each in counts.of_phase(phase)], axis=0))


@lru_cache(maxsize=KEPT)
def _map(counts: ServedRouting, phase: str, ranks: int) -> IntArray:
    """Experts (L, S) in the slots of the ranks in order, placed for a ``phase`` or, with "", for both."""
    planned = np.mean([_shares(counts, each) for each in ((phase,) if phase else PHASES)], axis=0)
    slots = min(counts.slots(ranks), ranks * planned.shape[1])
    found = []
    for heavy in planned:
        copies = greedy_counts(heavy, slots, ranks)
        each = np.repeat(np.arange(len(copies)), copies)
        found.append(np.ravel(packed(each, heavy / copies, np.ones(ranks), slots // ranks, swaps=0)))
    return np.array(found)
