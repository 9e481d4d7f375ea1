"""Groups of prefill and decode replicas that are tried first: which workers, and how many of each.

Prefill should answer as fast as decoding asks: x prefill workers of rate p feed y decode workers of rate d where
x p = y d.  The ratio x : y is taken next above and below d / p, where p and d are the bounds of ``bounds``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from solver.candidates import IntArray
from solver.serving.loads import FloatArray
from solver.serving.planning.bounds import MOST_REPLICAS, worker_bounds
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site
from solver.serving.planning.pricing import WorkerTable
from solver.serving.planning.shapes import Shape

MOST_SIDE: Final = 4
"""Replicas of the smaller side of a group."""
PREFILL_SHAPES: Final = 6
DECODE_SHAPES: Final = 12
PER_SIZE: Final = 2


def split_groups(table: WorkerTable, site: Site, singles: Sequence[Group]) -> Iterator[Group]:
    """Split groups of the workers of ``singles``, in every zone that has room for them."""
    bounds = worker_bounds(table, np.array([np.inf]))
    prompts, answers = bounds.prompts, bounds.answers[0, 0]
    for number, zone in enumerate(table.zones):
        own = [each for each in singles if each.zone == (zone.speed if each.decode.islands == 1 else number)]
        sizes = [len(site.islands[island].gpus) for island in zone.islands]
        for slot in sorted({each.decode.slot for each in own if each.decode.islands > 1} or {max(sizes)}):
            members = [each for each in own if _is_priced_with(slot, each.decode)]
            rows = np.array([table.row(each.zone, each.decode) for each in members], dtype=np.int64)
            for p, d, ratio in _pairs(members, prompts[rows], answers[rows]):
                for x, y in _ratios(ratio):
                    pools = members[d].decode, y, members[p].decode, x
                    group = Group(members[p].model, number, *pools, False, zone.cap_watts, zone.prefill_cap_watts)
                    if group.gpus <= sum(sizes):
                        yield group
                    inside = zone.is_whole and members[p].decode.islands == members[d].decode.islands == 1
                    if inside and group.gpus <= max(sizes):
                        yield replace(group, near=True)


def _pairs(members: Sequence[Group], prompts: FloatArray, answers: FloatArray) -> Iterator[tuple[int, int, float]]:
    """Prefill and decode workers that go together, and how many times faster the second is."""
    if members:
        gpus = np.array([each.gpus for each in members])
        for d in _best(answers, gpus, DECODE_SHAPES):
            for p in _best(prompts, gpus, PREFILL_SHAPES):
                yield p, d, float(answers[d] / prompts[p])


def _is_priced_with(slot: int, shape: Shape) -> bool:
    """Whether one pair of links describes it together with workers that take ``slot`` GPUs of several islands."""
    return shape.slot == slot if shape.islands > 1 else shape.slot <= slot


def _best(rates: FloatArray, gpus: IntArray, most: int) -> list[int]:
    """The ``most`` highest rates a GPU among the ``PER_SIZE`` fastest workers of each size, and a smallest one."""
    order = np.lexsort((-rates, gpus))
    sizes = gpus[order]
    is_fast = np.ones(len(order), dtype=bool)
    is_fast[PER_SIZE:] = sizes[PER_SIZE:] > sizes[:-PER_SIZE]
    able = order[is_fast & (rates[order] > 0)]
    ranked = able[np.argsort(-rates[able] / gpus[able], kind="stable")]
    return [int(each) for each in dict.fromkeys([*ranked[:most], *able[:1]])]


def _ratios(ratio: float) -> Iterator[tuple[int, int]]:
    """Numbers of prefill and decode replicas near ``ratio``, in lowest terms."""
    pairs: dict[tuple[int, int], None] = {}
    for side in range(1, MOST_SIDE + 1):
        for number in (math.floor(ratio * side), math.ceil(ratio * side)):
            pairs[max(1, number), side] = None
        for number in (math.floor(side / ratio), math.ceil(side / ratio)):
            pairs[side, max(1, number)] = None
    return ((x, y) for x, y in pairs if math.gcd(x, y) == 1 and x + y <= MOST_REPLICAS)
