"""Groups of prefill and decode replicas that are tried first: which workers, and how many of each.

Prefill should answer as fast as decoding asks: x prefill workers of rate p feed y decode workers of rate d where
x p = y d.  The ratio x : y is taken next above and below d / p, at a light, a middling and a full load of decoding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from solver.candidates import BoolArray, IntArray
from solver.serving.cases import steady_of
from solver.serving.loads import FloatArray
from solver.serving.percentiles import limited_latencies
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site
from solver.serving.planning.pricing import HALVINGS, WorkerTable
from solver.serving.planning.shapes import Shape
from solver.serving.steady_state import Steady

MOST_SIDE: Final = 4
"""Replicas of the smaller side of a group."""
MOST_REPLICAS: Final = 12
"""Replicas of a group in all."""
PREFILL_SHAPES: Final = 6
DECODE_SHAPES: Final = 12
PER_SIZE: Final = 2
MANY: Final = 1e4
"""Replicas of the other phase, with which a worker of one phase is never short of work."""
LOADS: Final = (0.05, 0.3, 1.0)
"""Loads of decoding, as shares of the highest, at which ratios are taken."""


def split_groups(table: WorkerTable, site: Site, singles: Sequence[Group]) -> Iterator[Group]:
    """Split groups of the workers of ``singles``, in every zone that has room for them."""
    prompts = _prompts_per_s(table)
    answers = [_answers_per_s(table, share) for share in LOADS]
    for number, zone in enumerate(table.zones):
        own = [each for each in singles if each.zone == (zone.speed if each.decode.islands == 1 else number)]
        sizes = [len(site.islands[island].gpus) for island in zone.islands]
        for slot in sorted({each.decode.slot for each in own if each.decode.islands > 1} or {max(sizes)}):
            members = [each for each in own if _is_priced_with(slot, each.decode)]
            rows = np.array([table.row(each.zone, each.decode) for each in members], dtype=np.int64)
            for p, d, ratio in _pairs(members, prompts[rows], [rates[rows] for rates in answers]):
                for x, y in _ratios(ratio):
                    group = Group(members[p].model, number, members[d].decode, y, members[p].decode, x)
                    if group.gpus <= sum(sizes):
                        yield group
                    inside = zone.is_whole and members[p].decode.islands == members[d].decode.islands == 1
                    if inside and group.gpus <= max(sizes):
                        yield replace(group, near=True)


def _pairs(
    members: Sequence[Group], prompts: FloatArray, answers: Sequence[FloatArray]
) -> Iterator[tuple[int, int, float]]:
    """Prefill and decode workers that go together, and how many times faster the second is."""
    if members:
        gpus = np.array([each.gpus for each in members])
        for rates in answers:
            for d in _best(rates, gpus, DECODE_SHAPES):
                for p in _best(prompts, gpus, PREFILL_SHAPES):
                    yield p, d, float(rates[d] / prompts[p])


def _is_priced_with(slot: int, shape: Shape) -> bool:
    """Whether one pair of links describes it together with workers that take ``slot`` GPUs of several islands."""
    return shape.slot == slot if shape.islands > 1 else shape.slot <= slot


def _prompts_per_s(table: WorkerTable) -> FloatArray:
    """Prompts a second (W,) of a worker that prefills only; 0 where one takes longer than the limit."""
    alone, busy = (_steady(table, np.array(load), prefill=1.0, decode=MANY) for load in (1.0, MANY))
    meets = table.fits & _meets(table, alone, 0)
    return np.asarray(np.where(meets, busy.requests_per_s, 0.0))


def _answers_per_s(table: WorkerTable, share: float) -> FloatArray:
    """Answers a second (W,) of a worker that decodes only, at ``share`` of the most requests within the limit."""

    def at(load: FloatArray) -> Steady:
        return _steady(table, load, prefill=MANY, decode=1.0)

    def meets_at(load: FloatArray) -> BoolArray:
        return _meets(table, at(load), 1)

    most = table.arrays.traffic.most_sequences
    low, high = np.ones_like(most), most
    meets = table.fits & meets_at(low)
    low = np.where(meets_at(high), high, low)
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        allowed = meets_at(middle)
        low, high = np.where(allowed, middle, low), np.where(allowed, high, middle)
    return np.asarray(np.where(meets, at(np.maximum(1.0, share * low)).requests_per_s, 0.0))


def _meets(table: WorkerTable, steady: Steady, latency: int) -> BoolArray:
    """Workers (W,) that meet the limits on one of ``LATENCIES``."""
    workload = table.served.workload
    limited = limited_latencies(steady, table.arrays.kinds, workload)[:, latency::3]
    return np.asarray((limited <= workload.limits_s[latency::3]).all(axis=1))


def _steady(table: WorkerTable, load: FloatArray, *, prefill: float, decode: float) -> Steady:
    """Workers (W,), each in a split group of so many prefill and decode replicas, under ``load`` in flight."""
    like = np.ones_like(table.arrays.traffic.split)
    traffic = replace(
        table.arrays.traffic,
        split=like,
        concurrency=load * like,
        prefill_workers=prefill * like,
        decode_workers=decode * like,
    )
    return steady_of(replace(table.split_arrays, traffic=traffic), table.split_rates)


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
