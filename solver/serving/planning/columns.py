"""Split groups beyond those tried first, priced where they may matter: column generation with bounds.

Letters: x prefill workers p, y decode workers d of a group, c requests in flight.  It answers no more than

    min(x P[p], y D[d](b))  requests a second,    b <= c / y,  the memory of d and the limit on its tokens

with P and D of ``bounds``.  With these and the duals of the relaxation the reduced cost of a group has a lower
bound before anybody prices it; workers that take as many GPUs of as many islands are looked at together first.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.cluster.draw import draw_law
from cluster_models.serving.goal import ServedModel, ServingGoal, ServingMode, ServingObjective
from solver.candidates import BoolArray, IntArray
from solver.serving.loads import FloatArray
from solver.serving.planning.bounds import (
    MARGIN,
    MOST_REPLICAS,
    Workers,
    best_of,
    joined_workers,
    longest_wait_s,
    rows_of,
    worker_bounds,
)
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site
from solver.serving.planning.offers import Priced, demand, is_exact
from solver.serving.planning.pricing import loads_up_to
from solver.serving.planning.program import Duals
from solver.serving.planning.shapes import Shape
from solver.serving.planning.zones import Zone

RATIOS: Final = tuple(
    (x, total - x) for total in range(2, MOST_REPLICAS + 1) for x in range(1, total) if math.gcd(x, total) == 1
)


@dataclass(frozen=True, slots=True, eq=False)
class Unpriced:
    """All split groups of one model in a zone of the best links: its workers one by one, and by kind."""

    model: int
    served: ServedModel
    zone: int
    at: Zone
    cost: float
    total: int
    largest: int
    loads: FloatArray
    wait_s: float
    shapes: tuple[Shape, ...]
    workers: Workers
    kinds: Workers
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
    every = worker_bounds(table, loads)
    for number, zone in enumerate(zones):
        shapes = [shape for at, shape in table.rows if at == number]
        rows = np.array([table.rows[number, shape] for shape in shapes], dtype=np.int64)
        if not len(rows):
            continue
        workers = rows_of(every, rows)
        distinct, kind = np.unique(np.stack([workers.islands, workers.slot], axis=1), axis=0, return_inverse=True)
        members = tuple(np.flatnonzero(kind.ravel() == each) for each in range(len(distinct)))
        sizes = [len(site.islands[island].gpus) for island in zone.islands]
        yield Unpriced(
            model=model,
            served=served,
            zone=number,
            at=zone,
            cost=_gpu_cost(zone, goal),
            total=sum(sizes),
            largest=max(sizes),
            loads=loads,
            wait_s=longest_wait_s(served),
            shapes=tuple(shapes),
            workers=workers,
            kinds=joined_workers([best_of(rows_of(workers, own)) for own in members]),
            members=members,
        )


def _gpu_cost(zone: Zone, goal: ServingGoal) -> float:
    """Coefficient of a GPU in an objective that counts GPUs or prices."""
    if goal.objective is not ServingObjective.COST:
        return 1.0
    price = zone.gpu.price_usd_per_hour
    return math.inf if price is None else price


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
    sides = rows_of(unpriced.workers, prefill), rows_of(unpriced.workers, decode)
    worth = _worth(unpriced, *sides, ratio, duals, goal, near=near)
    found = []
    for i, j in zip(*np.nonzero(worth < below), strict=True):
        shapes = unpriced.shapes[decode[j]], unpriced.shapes[prefill[i]]
        pools = shapes[0], ratio[1], shapes[1], ratio[0], near
        group = Group(unpriced.model, unpriced.zone, *pools, unpriced.at.cap_watts, unpriced.at.prefill_cap_watts)
        if group not in done:
            found.append((float(worth[i, j]), group))
    return found


def _worth(
    unpriced: Unpriced,
    prefill: Workers,
    decode: Workers,
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
    watts = x * prefill.gpus[:, np.newaxis] * unpriced.at.prefill_watts + y * decode.gpus * unpriced.at.watts
    fixed = gpus * (duals.tie - duals.gpus) - watts * duals.watts - parts
    cost = watts if goal.objective is ServingObjective.POWER else unpriced.cost * gpus
    scale = served.weight * served.workload.output_tokens
    price = duals.demands[unpriced.model]
    if is_exact(served, goal):
        value = (-scale * rates - price * unpriced.loads[:, np.newaxis, np.newaxis]).min(axis=0)
    elif goal.objective is ServingObjective.ENERGY:
        rate = np.minimum(rates[0], wanted.load)
        # watts are concave in the rate, so that the least reduced cost is at none or at the most
        ends = (_least_watts(unpriced, prefill, decode, ratio, each) - price * each for each in (0.0 * rate, rate))
        value = np.minimum(*ends)
    else:
        rate = rates[0]
        load = rate
        if served.workload.concurrency is not None:
            waiting = np.full_like(rate, np.inf) if math.isinf(unpriced.wait_s) else rate * unpriced.wait_s
            chords = (y * each + rate * seconds for each, seconds in zip(decode.fixed, decode.each_s, strict=True))
            decoding = np.minimum(y * decode.decoding, MARGIN * np.maximum.reduce(list(chords)))
            load = np.minimum(y * decode.most, decoding + waiting)
        value = np.where(rate > 0, -price * load if wanted.load else -price, 0.0)
        value = value + (-scale * rate if goal.objective.is_maximum else cost)
    return np.where(
        _goes(unpriced, prefill, decode, gpus, near=near) & (rates.max(axis=0) > 0), fixed + value, np.inf
    )


def _least_watts(
    unpriced: Unpriced, prefill: Workers, decode: Workers, ratio: tuple[int, int], rate: FloatArray
) -> FloatArray:
    """Least watts (A, B) drawn by groups of prefill (A,) and decode workers (B,) at ``rate`` (A, B)."""
    x, y = ratio
    law, has_experts = draw_law(), unpriced.served.architecture.experts is not None
    zone, one = unpriced.at, np.newaxis
    sides = (
        (
            x * prefill.gpus[:, one],
            x * prefill.prompt_reads[:, one],
            x * prefill.prompt_products[:, one],
            zone.prefill_watts,
        ),
        (y * decode.gpus, y * decode.answer_reads, y * decode.answer_products, zone.watts),
    )
    watts = (
        gpus * np.minimum(zone.gpu.power_watts * law.share(rate / reads, rate / products, has_experts), most)
        for gpus, reads, products, most in sides
    )
    return np.asarray(sum(watts) / MARGIN)


def _goes(unpriced: Unpriced, prefill: Workers, decode: Workers, gpus: IntArray, *, near: bool) -> BoolArray:
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
