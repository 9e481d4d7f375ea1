"""Throughput of groups of one kind alone on the best links there are, and why they are not the plan."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.serving.figures import StepShares
from cluster_models.serving.goal import ServingGoal, ServingObjective
from cluster_models.serving.plan import LIMIT_LOSSES, LossReason, ServingAlternative
from cluster_models.serving.replicas import ReplicaGroup
from cluster_models.serving.workload import Pool, ServingConfiguration
from solver.candidates import IntArray
from solver.serving.cases import ServingCase
from solver.serving.planning.groups import Group, watts_of
from solver.serving.planning.islands import Site
from solver.serving.planning.offers import Priced, capacities, demand, group_cost, is_exact
from solver.serving.planning.pricing import waiting_s
from solver.serving.planning.zones import Zone
from solver.serving.predict import ServingPrediction, predict_serving

MOST_TRIED: Final = 200
"""Groups, those with most output a GPU, that are tried alone."""


@dataclass(frozen=True, slots=True)
class _Alone:
    """``copies`` of a group under ``load`` each (the unit of the demand), and the objective they reach."""

    row: int
    copies: int
    load: float
    objective: float


def alternatives_of(
    model: int,
    prices: Priced,
    site: Site,
    zones: Sequence[Zone],
    goal: ServingGoal,
    plan: Sequence[ReplicaGroup],
    most: int,
) -> tuple[ServingAlternative, ...]:
    """The best ``most`` of groups of one kind alone, and the one that misses the limits by least."""
    own = _objective(prices, zones, goal, plan)
    taken = Counter((each.configuration, _kind(each)) for each in plan)
    found: dict[ServingConfiguration, ServingAlternative] = {}
    for alone in _ranked(prices, site, zones, goal):
        group = prices.groups[alone.row]
        gpu = zones[group.zone].gpu.name
        if taken == {(group.configuration, (gpu, group.cap_watts, group.prefill_cap_watts)): alone.copies}:
            continue
        case = _case(prices, zones[group.zone], group, alone.load)
        prediction = predict_serving(case)
        total = _times(group.configuration, alone.copies)
        reached = alone.objective
        if goal.objective is ServingObjective.ENERGY:
            reached = alone.copies * prediction.drawn_watts.value
        loss = abs(reached - own) / own if _is_worse(reached, own, goal) else 0.0
        found.setdefault(
            total,
            ServingAlternative(
                model=model,
                gpu_kind=gpu,
                configuration=total,
                first_token_s=_first_token_s(prices, prediction),
                token_s=prediction.token_s.value,
                output_tokens_per_s=alone.copies * prediction.output_tokens_per_s.value,
                objective=reached,
                worse_by=loss,
                reason=LossReason.OBJECTIVE,
                reason_value=loss,
                slowest_part=_slowest_part(prediction.decode, plan),
                power_cap_watts=group.cap_watts,
            ),
        )
        if len(found) == most:
            break
    return (*found.values(), *_missing(model, prices, zones))


def _objective(prices: Priced, zones: Sequence[Zone], goal: ServingGoal, plan: Sequence[ReplicaGroup]) -> float:
    """Part of the plan's groups of this model in the objective, without the model's weight."""
    outputs = prices.served.workload.output_tokens
    if goal.objective is ServingObjective.ENERGY:
        return sum(each.drawn_watts.value for each in plan if each.drawn_watts)
    if is_exact(prices.served, goal):
        return outputs * sum(each.requests_per_s for each in plan)
    if goal.objective.is_maximum:
        return outputs * sum(each.most_requests_per_s for each in plan)
    kinds = {zone.gpu.name: zone.gpu for zone in zones}
    if goal.objective is ServingObjective.POWER:
        return sum(replica.watts(kinds) for each in plan for replica in each.replicas)
    if goal.objective is ServingObjective.COST:
        return sum(each.gpus * (kinds[each.replicas[0].gpu_kind].price_usd_per_hour or 0.0) for each in plan)
    return float(sum(each.gpus for each in plan))


def _kind(group: ReplicaGroup) -> tuple[str, float | None, float | None]:
    """GPU kind and power caps of both phases."""
    first, last = group.replicas[0], group.replicas[-1]
    return first.gpu_kind, last.power_cap_watts, first.power_cap_watts


def _is_worse(objective: float, own: float, goal: ServingGoal) -> bool:
    return objective < own if goal.objective.is_maximum else objective > own


def _ranked(prices: Priced, site: Site, zones: Sequence[Zone], goal: ServingGoal) -> list[_Alone]:
    """Groups that carry the load alone, the best first."""
    points, top = prices.points, prices.top
    able = np.flatnonzero(top >= 0)
    if not len(able):
        return []
    gpus = np.array([prices.groups[g].gpus for g in able])
    able = able[np.argsort(-points.requests_per_s[top[able]] / gpus, kind="stable")[:MOST_TRIED]]
    wanted = demand(prices.served, goal)
    if is_exact(prices.served, goal):
        found = [_sharing(prices, int(g), _copies(prices.groups[g], site, zones, goal), wanted.load) for g in able]
    else:
        best = capacities(prices, able)
        closed = prices.served.workload.concurrency is not None
        room = np.where(best.meets, best.concurrency if closed else best.requests_per_s, 0.0)
        found = [
            _enough(prices, int(g), _copies(prices.groups[g], site, zones, goal), (held, rate), zones, goal)
            for g, held, rate in zip(able, room.tolist(), best.requests_per_s.tolist(), strict=True)
        ]
    ranked = [each for each in found if each is not None]
    return sorted(ranked, key=lambda each: -each.objective if goal.objective.is_maximum else each.objective)


def _sharing(prices: Priced, row: int, copies: int, load: float) -> _Alone | None:
    """The number of copies that answers most when they share ``load`` requests in flight."""
    points = prices.points
    start = int(np.searchsorted(points.group, row))
    own = slice(start, int(prices.top[row]) + 1)
    number = np.arange(1, copies + 1)
    share = load / number
    rates = number * np.interp(share, points.concurrency[own], points.requests_per_s[own])
    rates[share > points.concurrency[own][-1] * (1 + 1e-9)] = 0.0
    if not copies or not rates.max() > 0:
        return None
    best = int(rates.argmax())
    return _Alone(row, best + 1, float(share[best]), prices.served.workload.output_tokens * float(rates[best]))


def _enough(
    prices: Priced, row: int, copies: int, held: tuple[float, float], zones: Sequence[Zone], goal: ServingGoal
) -> _Alone | None:
    """All copies for a maximum, else as few as hold the load; ``held``: load and rate of one at most."""
    room, rate = held
    load = demand(prices.served, goal).load
    if room * copies < load or not room * copies > 0:
        return None
    group = prices.groups[row]
    if goal.objective.is_maximum:
        total = prices.served.workload.output_tokens * copies * rate
        return _Alone(row, copies, room if load == 0 else min(room, load / copies), total)
    number = math.ceil(load / room)
    return _Alone(row, number, load / number, number * group_cost(group, zones[group.zone], goal))


def _copies(group: Group, site: Site, zones: Sequence[Zone], goal: ServingGoal) -> int:
    """How many of a group fit into its zone and the budgets of the goal."""
    most = (
        (goal.max_gpus or math.inf) // group.gpus,
        (goal.max_power_watts or math.inf) // watts_of(group, zones[group.zone]),
    )
    return int(min(_copies_in(group, site, zones), *most))


def _copies_in(group: Group, site: Site, zones: Sequence[Zone]) -> int:
    """How many of a group fit into its zone, larger parts cut first; a lower bound where parts differ."""
    sizes = np.array([len(site.islands[island].gpus) for island in zones[group.zone].islands])
    if len(group.slots) == 1:
        size, count = group.slots[0]
        return int((sizes // size).sum()) // count
    for copies in range(int(sizes.sum()) // group.gpus, 0, -1):
        left = sizes.copy()
        if all(_cut(left, size, count * copies) for size, count in group.slots):
            return copies
    return 0


def _cut(left: IntArray, size: int, parts: int) -> bool:
    """Take ``parts`` of ``size`` GPUs from islands with ``left`` GPUs, the fullest ones first; False if too few."""
    for island in np.argsort(left, kind="stable"):
        taken = min(parts, int(left[island]) // size)
        left[island] -= taken * size
        parts -= taken
    return parts == 0


def _times(configuration: ServingConfiguration, copies: int) -> ServingConfiguration:
    def more(pool: Pool) -> Pool:
        return Pool(pool.worker, pool.replicas * copies)

    prefill = configuration.prefill
    return ServingConfiguration(more(configuration.decode), None if prefill is None else more(prefill))


def _case(prices: Priced, zone: Zone, group: Group, load: float) -> ServingCase:
    """One group under ``load``."""
    workload = prices.served.workload
    shapes = [shape for shape in (group.decode, group.prefill) if shape is not None]
    return ServingCase(
        architecture=prices.served.architecture,
        gpu=zone.gpu,
        power_caps_watts=(zone.prefill_cap_watts, zone.cap_watts),
        links=zone.links(max(each.islands for each in shapes), max(each.slot for each in shapes)),
        workload=replace(workload, concurrency=load)
        if workload.concurrency is not None
        else replace(workload, requests_per_s=load),
        configuration=group.configuration,
        transfer_bytes_per_s=zone.domain_bytes_per_s if group.near else zone.transfer_bytes_per_s,
        own=prices.served.own,
    )


def _first_token_s(prices: Priced, prediction: ServingPrediction) -> float:
    """Mean time to the first token, waiting for a busy phase included."""
    waiting = waiting_s(
        prices.served,
        np.array(prediction.concurrency),
        np.array(prediction.requests_per_s),
        np.array(prediction.token_s.value),
    )
    return max(prediction.first_token_s.value, float(waiting))


def _slowest_part(step: StepShares, plan: Sequence[ReplicaGroup]) -> str:
    """The part of a decode step that exceeds that of the plan's busiest replica most."""
    busiest = max(plan, key=lambda group: group.share).replicas[-1].decode
    if busiest is None:
        return ""
    excess = {name: getattr(step, name) - getattr(busiest, name) for name in StepShares.__slots__}
    worst = max(excess, key=lambda name: excess[name])
    return worst if excess[worst] > 0 else ""


def _missing(model: int, prices: Priced, zones: Sequence[Zone]) -> Iterator[ServingAlternative]:
    """The group that misses the limits by least, at its lowest load."""
    points, workload = prices.points, prices.served.workload
    starts = np.searchsorted(points.group, np.flatnonzero(prices.top < 0))
    if not len(starts):
        return
    over = points.excess(workload.limits_s)[starts]
    best = int(over.max(axis=1).argmin())
    row = int(starts[best])
    group = prices.groups[points.group[row]]
    worst = int(over[best].argmax())
    yield ServingAlternative(
        model=model,
        gpu_kind=zones[group.zone].gpu.name,
        configuration=group.configuration,
        first_token_s=float(points.first_token_s[row]),
        token_s=float(points.token_s[row]),
        output_tokens_per_s=None,
        objective=None,
        worse_by=None,
        reason=LIMIT_LOSSES[worst % 3],
        reason_value=float(points.limited_s[row, worst]),
        power_cap_watts=group.cap_watts,
    )
