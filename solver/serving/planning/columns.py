"""Split groups beyond those tried first, priced where they may matter: column generation with bounds.

Letters: x prefill workers p, y decode workers d of a group, c requests in flight.  It answers no more than

    min(x P[p], y D[d](b))  requests a second,    b <= c / y,  the memory of d and the limit on its tokens

P: prompts a second of a worker whose steps are full; D(b) = b / (seconds of an answer beside b - 1 others), nothing
lost between the phases.  With these and the duals of the relaxation the reduced cost of a group has a lower bound
before anybody prices it; workers that take as many GPUs of as many islands are looked at together first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from cluster_models.serving.goal import ServedModel, ServingGoal, ServingMode
from solver.candidates import BoolArray, IntArray
from solver.serving.loads import FloatArray
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site
from solver.serving.planning.offers import Priced, demand, gpu_cost, is_exact
from solver.serving.planning.pricing import WorkerTable, loads_up_to
from solver.serving.planning.program import Duals
from solver.serving.planning.shapes import Shape
from solver.serving.planning.splits import MOST_REPLICAS
from solver.serving.planning.zones import Zone
from solver.serving.rates import Rates
from solver.serving.steady_state import decode_of, prefill_of

HALVINGS: Final = 30
MARGIN: Final = 1.01
"""Bounds over what is priced: fixed points settle to within a thousandth, loads to a four-thousandth."""
MEAN_BELOW: Final = 0.7
"""Percentiles from this on are no less than the mean, of a skewed distribution as well."""
KNOTS: Final = (0.1, 0.25, 0.5, 0.75, 1.0)
"""Shares of the most sequences between which those that a rate needs are taken as straight."""
LEAST: Final = 1e-9
RATIOS: Final = tuple(
    (x, total - x) for total in range(2, MOST_REPLICAS + 1) for x in range(1, total) if math.gcd(x, total) == 1
)


@dataclass(frozen=True, slots=True, eq=False)
class _Workers:
    """Workers (W,), or kinds of them at their best: GPUs in each of ``islands``, and bounds on what they answer.

    ``answers`` (Y, L, W): of one among y decode workers, at each load; ``most`` and ``decoding`` sequences at once,
    by memory and within the limits.  One that answers r a second decodes max_k (``fixed[k]`` + r ``each_s[k]``) at
    most, (K, W): chords of a convex function.
    """

    islands: IntArray
    slot: IntArray
    prompts: FloatArray
    answers: FloatArray
    most: FloatArray
    decoding: FloatArray
    fixed: FloatArray
    each_s: FloatArray

    @property
    def gpus(self) -> IntArray:
        return self.islands * self.slot


@dataclass(frozen=True, slots=True, eq=False)
class Unpriced:
    """All split groups of one model in a zone of the best links: its workers one by one, and by kind."""

    model: int
    served: ServedModel
    zone: int
    watts: float
    cost: float
    total: int
    largest: int
    loads: FloatArray
    wait_s: float
    shapes: tuple[Shape, ...]
    workers: _Workers
    kinds: _Workers
    members: tuple[IntArray, ...]

    @property
    def sizes(self) -> set[int]:
        """GPUs in one island that a group may take."""
        return {int(slot) for slot in self.kinds.slot} | set(range(2, self.largest + 1))


def unpriced_of(
    model: int, prices: Priced, site: Site, zones: Sequence[Zone], goal: ServingGoal
) -> Iterator[Unpriced]:
    """The split groups of a model, none where the goal or the engine has none; ``zones`` of the best links."""
    table, served = prices.table, prices.served
    if table is None or ServingMode.SPLIT not in goal.modes or not served.workload.engine.splits:
        return
    exact = is_exact(served, goal)
    loads = loads_up_to(served.workload.concurrency or 1.0) if exact else np.array([np.inf])
    every = _bounds(table, loads)
    for number, zone in enumerate(zones):
        shapes = [shape for at, shape in table.rows if at == number]
        rows = np.array([table.rows[number, shape] for shape in shapes], dtype=np.int64)
        if not len(rows):
            continue
        workers = _of(every, rows)
        distinct, kind = np.unique(np.stack([workers.islands, workers.slot], axis=1), axis=0, return_inverse=True)
        members = tuple(np.flatnonzero(kind.ravel() == each) for each in range(len(distinct)))
        sizes = [len(site.islands[island].gpus) for island in zone.islands]
        yield Unpriced(
            model=model,
            served=served,
            zone=number,
            watts=zone.gpu.power_watts,
            cost=gpu_cost(zone.gpu, goal),
            total=sum(sizes),
            largest=max(sizes),
            loads=loads,
            wait_s=_longest_wait_s(served),
            shapes=tuple(shapes),
            workers=workers,
            kinds=_joined([_best(_of(workers, own)) for own in members]),
            members=members,
        )


def _of(workers: _Workers, rows: IntArray) -> _Workers:
    return _Workers(*(getattr(workers, each.name)[..., rows] for each in fields(_Workers)))


def _best(workers: _Workers) -> _Workers:
    """One that is as good as the best of ``workers`` in everything."""
    return _Workers(*(getattr(workers, each.name).max(axis=-1, keepdims=True) for each in fields(_Workers)))


def _joined(workers: Sequence[_Workers]) -> _Workers:
    return _Workers(
        *(np.concatenate([getattr(each, field.name) for each in workers], axis=-1) for field in fields(_Workers))
    )


def groups_below(
    unpriced: Unpriced, duals: Duals, goal: ServingGoal, done: Collection[Group], below: float, most: int
) -> tuple[list[Group], float, float]:
    """Groups not ``done`` whose reduced cost may lie below ``below``, the lowest first.

    No more than ``most``; besides, the least bound on a reduced cost, and that of the groups not returned.
    """
    found: list[tuple[float, Group]] = []
    for x, y in RATIOS:
        for near in (False, True):
            worth = _worth(unpriced, unpriced.kinds, unpriced.kinds, (x, y), duals, goal, near=near)
            for a, b in zip(*np.nonzero(worth < below), strict=True):
                found += _pairs(unpriced, (int(a), int(b)), (x, y), duals, goal, done, below, near=near)
    found.sort(key=lambda each: each[0])
    least, left = (min((value for value, _ in found[start : start + 1]), default=math.inf) for start in (0, most))
    return [group for _, group in found[:most]], least, left


def least_cost(unpriced: Unpriced, duals: Duals, goal: ServingGoal) -> float:
    """A lower bound on the reduced cost of any group, quicker and looser than that of ``groups_below``."""
    kinds = unpriced.kinds
    worths = (
        _worth(unpriced, kinds, kinds, ratio, duals, goal, near=near) for ratio in RATIOS for near in (False, True)
    )
    return min(float(each.min(initial=math.inf)) for each in worths)


def _pairs(
    unpriced: Unpriced,
    kinds: tuple[int, int],
    ratio: tuple[int, int],
    duals: Duals,
    goal: ServingGoal,
    done: Collection[Group],
    below: float,
    *,
    near: bool,
) -> list[tuple[float, Group]]:
    """Groups of prefill and decode workers of two kinds, with the bounds on their reduced costs."""
    prefill, decode = (unpriced.members[kind] for kind in kinds)
    sides = _of(unpriced.workers, prefill), _of(unpriced.workers, decode)
    worth = _worth(unpriced, *sides, ratio, duals, goal, near=near)
    found = []
    for i, j in zip(*np.nonzero(worth < below), strict=True):
        shapes = unpriced.shapes[decode[j]], unpriced.shapes[prefill[i]]
        group = Group(unpriced.model, unpriced.zone, shapes[0], ratio[1], shapes[1], ratio[0], near)
        if group not in done:
            found.append((float(worth[i, j]), group))
    return found


def _worth(
    unpriced: Unpriced,
    prefill: _Workers,
    decode: _Workers,
    ratio: tuple[int, int],
    duals: Duals,
    goal: ServingGoal,
    *,
    near: bool,
) -> FloatArray:
    """Lower bounds (A, B) on the reduced costs of groups of prefill (A,) and decode workers (B,)."""
    x, y = ratio
    served, wanted = unpriced.served, demand(unpriced.served, goal)
    gpus = x * prefill.gpus[:, np.newaxis] + y * decode.gpus
    rates = np.minimum(x * prefill.prompts[:, np.newaxis], y * decode.answers[y - 1][:, np.newaxis])
    part = duals.parts[unpriced.zone]
    if near:
        parts = part[np.minimum(gpus, unpriced.largest)]
    else:
        parts = (x * prefill.islands * part[prefill.slot])[:, np.newaxis] + y * decode.islands * part[decode.slot]
    fixed = gpus * (duals.tie - duals.gpus - unpriced.watts * duals.watts) - parts
    scale = served.weight * served.workload.output_tokens
    price = duals.demands[unpriced.model]
    if wanted.is_exact:
        value = (-scale * rates - price * unpriced.loads[:, np.newaxis, np.newaxis]).min(axis=0)
    else:
        rate = rates[0]
        load = rate
        if served.workload.concurrency is not None:
            waiting = np.full_like(rate, np.inf) if math.isinf(unpriced.wait_s) else rate * unpriced.wait_s
            chords = (y * each + rate * seconds for each, seconds in zip(decode.fixed, decode.each_s, strict=True))
            decoding = np.minimum(y * decode.decoding, MARGIN * np.maximum.reduce(list(chords)))
            load = np.minimum(y * decode.most, decoding + waiting)
        value = np.where(rate > 0, -price * load if wanted.load else -price, 0.0)
        value = value + (-scale * rate if goal.objective.is_maximum else unpriced.cost * gpus)
    return np.where(
        _goes(unpriced, prefill, decode, gpus, near=near) & (rates.max(axis=0) > 0), fixed + value, np.inf
    )


def _goes(unpriced: Unpriced, prefill: _Workers, decode: _Workers, gpus: IntArray, *, near: bool) -> BoolArray:
    """Which prefill (A,) and decode workers (B,) make a group: over several islands both take as many of each."""
    first, other = prefill.islands[:, np.newaxis] > 1, decode.islands > 1
    if near:
        return np.asarray(~first & ~other & (gpus <= unpriced.largest))
    slots = prefill.slot[:, np.newaxis], decode.slot
    alike = np.where(first & other, slots[0] == slots[1], True)
    alike &= np.where(first & ~other, slots[1] <= slots[0], True) & np.where(
        other & ~first, slots[0] <= slots[1], True
    )
    return np.asarray(alike & (gpus <= unpriced.total))


def _bounds(table: WorkerTable, loads: FloatArray) -> _Workers:
    """All workers of the table (W,)."""
    traffic, rates, prefill = table.arrays.traffic, table.split_rates, table.split_arrays.prefill
    ranks, room = prefill.attention_data, np.maximum(traffic.chunk_tokens / traffic.new_tokens, 1.0)
    full = prefill_of(prefill, rates, traffic, ranks, room).total_s
    alone = prefill_of(prefill, rates, traffic, np.ones_like(ranks), np.ones_like(ranks)).total_s
    first_s, token_s, whole_s = _limits_s(table.served)
    in_time = table.fits & (alone + rates.request_s <= MARGIN * first_s)
    longest_s = MARGIN * min(max(table.served.workload.output_tokens - 1.0, LEAST) * token_s, whole_s)
    most = traffic.most_sequences
    low, high = np.ones_like(most), most
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        within = _answer_s(table, rates, middle) <= longest_s
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    able = table.fits & (_answer_s(table, rates, np.ones_like(most)) <= longest_s)

    def answers(load: float) -> FloatArray:
        own = np.minimum(load, high)
        return np.asarray(able * MARGIN * own / _answer_s(table, rates, own))

    knots = [np.maximum(share * high, 1.0) for share in KNOTS]
    rising = [each / _answer_s(table, rates, each) for each in knots]
    slopes = [_answer_s(table, rates, knots[0])]
    slopes += [
        (b - a) / np.maximum(s - r, LEAST) * (s > r)
        for a, b, r, s in zip(knots, knots[1:], rising, rising[1:], strict=False)
    ]
    fixed = [
        np.zeros_like(high),
        *(b - slope * s for b, s, slope in zip(knots[1:], rising[1:], slopes[1:], strict=True)),
    ]
    return _Workers(
        islands=np.array([shape.islands for _, shape in table.rows]),
        slot=np.array([shape.slot for _, shape in table.rows]),
        prompts=in_time * MARGIN * room * ranks * prefill.pipeline / full,
        answers=np.array([[answers(load / y) for load in loads.tolist()] for y in range(1, MOST_REPLICAS)]),
        most=most,
        decoding=high,
        fixed=np.array(fixed),
        each_s=np.array(slopes),
    )


def _answer_s(table: WorkerTable, rates: Rates, sequences: FloatArray) -> FloatArray:
    """Seconds from the first token to the last beside so many sequences, itself included (W,)."""
    step = decode_of(table.split_arrays.decode, rates, table.arrays.traffic, np.maximum(sequences, 1.0)).total_s
    outputs = max(table.served.workload.output_tokens - 1.0, LEAST)
    return np.asarray(outputs * step / table.arrays.traffic.yields)


def _limits_s(served: ServedModel) -> tuple[float, float, float]:
    """Limits that hold for means as well, so that bounds may use them."""
    workload = served.workload
    share = workload.limit_percentile
    if workload.is_mixed or (share is not None and share < MEAN_BELOW):
        return math.inf, math.inf, math.inf
    first, token, whole = workload.limits_s[:3]
    return first, token, whole


def _longest_wait_s(served: ServedModel) -> float:
    """Mean seconds to the first token at most."""
    first, _, whole = _limits_s(served)
    return MARGIN * min(first, whole)
