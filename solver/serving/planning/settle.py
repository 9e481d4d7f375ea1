"""Placed groups at the links that they really have: loads, shares and predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.serving.goal import ServedModel, ServingGoal, ServingObjective
from solver.serving.cluster_links import MESSAGE_BYTES
from solver.serving.loads import FloatArray
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site
from solver.serving.planning.offers import (
    SCARCE,
    Priced,
    capacities,
    demand,
    group_cost,
    is_exact,
    priced_groups,
    workers_of,
)
from solver.serving.planning.placing import PlacedGroup, PlacedReplica
from solver.serving.planning.pricing import (
    Points,
    closed_at,
    drawn_watts_at,
    open_at,
    worker_table,
)
from solver.serving.planning.program import Demand
from solver.serving.planning.zones import Zone, slowed

TOLERANCE: Final = 1e-6
ANY_LOAD: Final = ServingGoal(ServingObjective.GOODPUT)
"""Goal under which groups are priced at all the loads that they hold."""


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Placed groups of one model (G,) under their loads; ``links`` are the zones that hold each alone.

    ``objective`` in the unit of the goal; ``is_sound`` where limits and load are met.
    """

    groups: tuple[PlacedGroup, ...]
    zones: tuple[Zone, ...]
    at: Points
    most: Points
    objective: float
    is_sound: bool


def settle(
    model: int,
    served: ServedModel,
    placed: Sequence[PlacedGroup],
    site: Site,
    goal: ServingGoal,
    wanted: Demand | None = None,
) -> Settled:
    """The groups of ``model`` among ``placed`` under the load that they share, by default that of ``goal``."""
    own = tuple(each for each in placed if each.group.model == model)
    zones = [own_zone(each, site) for each in own]
    distinct = {zone: number for number, zone in enumerate(dict.fromkeys(zones))}
    groups = [replace(each.group, zone=distinct[zone], near=False) for each, zone in zip(own, zones, strict=True)]
    prices = _priced(served, groups, tuple(distinct))
    assert prices.cases is not None  # every model has a group
    most = capacities(prices, np.arange(len(groups)))
    wanted = wanted or demand(served, goal)
    closed = served.workload.concurrency is not None
    room = np.where(most.meets, most.concurrency if closed else most.requests_per_s, 0.0)
    loads = np.array([each.load for each in own]) if wanted.is_exact else room
    saves_energy = goal.objective is ServingObjective.ENERGY
    if saves_energy:
        loads = consolidated(groups, loads, room)
    if not wanted.is_exact and goal.objective is not ServingObjective.GOODPUT:
        loads = room * min(1.0, wanted.load / max(float(room.sum()), 1e-12))
    at = (closed_at if closed else open_at)(served, prices.cases, np.arange(len(groups)), loads)
    rows = np.arange(len(groups))
    drawn = 0.0
    if saves_energy:
        drawn = float(drawn_watts_at(prices.cases, groups, tuple(distinct), rows, at.requests_per_s).sum())
    carried = float((loads if saves_energy else room).sum())
    holds = carried >= wanted.load * (1 - TOLERANCE) or (wanted.is_exact and not saves_energy)
    return Settled(
        own,
        tuple(zones),
        at,
        most,
        drawn if saves_energy else _objective(served, own, at if is_exact(served, goal) else most, zones, goal),
        is_sound=bool(holds and at.meets.all()),
    )


def consolidated(groups: Sequence[Group], loads: FloatArray, room: FloatArray) -> FloatArray:
    """``loads`` (G,) of equal groups moved to the first of them, up to their ``room``; beyond it, to any others.

    Power is concave in the rate, so that a busy group and an idle one draw less than two half busy ones.
    """
    found = loads.copy()
    for group in set(groups):
        own = [row for row, each in enumerate(groups) if each == group]
        least = np.minimum(SCARCE[0] * room[own], loads[own])
        left = float((loads[own] - least).sum())
        for row, low in zip(own, least.tolist(), strict=True):
            found[row] = min(low + left, max(float(room[row]), low))
            left -= float(found[row]) - low
    left = float((loads - found).sum())  # own links may carry less than those that loads were found for
    for row in np.flatnonzero(found < room).tolist():
        more = min(max(left, 0.0), float(room[row] - found[row]))
        found[row], left = found[row] + more, left - more
    return found


def own_zone(placed: PlacedGroup, site: Site) -> Zone:
    """A zone of the group's own islands, at the slowest of the links that it uses."""
    islands = sorted({part.island for replica in placed.replicas for part in replica.parts})
    members = [site.islands[island] for island in islands]
    kind = members[0].gpu_kind
    paces = site.bytes_per_s(kind) / max(member.inside for member in members)
    gpu = slowed(site.snapshot.cluster.gpu_kinds[kind], max(member.slowdown for member in members))
    pairs = [
        (a.island, b.island)
        for replica in placed.replicas
        for a in replica.parts
        for b in replica.parts
        if a.island != b.island
    ]
    ways = [(a, b) for a in _islands(placed.prefill) for b in _islands(placed.decode) if a != b]
    alone = MESSAGE_BYTES / paces
    return Zone(
        gpu=gpu,
        islands=(),
        domain_bytes_per_s=paces,
        crossing_s=(max((float(site.crossing_s[pair]) for pair in pairs), default=alone),),
        crossing_latency_s=max((float(site.latency_s[pair]) for pair in pairs), default=0.0),
        single_s=max((float(site.single_s[pair]) for pair in ways), default=alone),
        speed=0,
        is_whole=True,
        cap_watts=placed.group.cap_watts,
        prefill_cap_watts=placed.group.prefill_cap_watts,
    )


def _islands(replicas: Sequence[PlacedReplica]) -> set[int]:
    return {part.island for replica in replicas for part in replica.parts}


def _priced(served: ServedModel, groups: Sequence[Group], zones: Sequence[Zone]) -> Priced:
    """The groups, each in the zone of its own islands."""
    own = [replace(zone, speed=number) for number, zone in enumerate(zones)]
    return priced_groups(worker_table(served, own, workers_of(groups, own)), groups, ANY_LOAD)


def _objective(
    served: ServedModel, groups: Sequence[PlacedGroup], points: Points, zones: Sequence[Zone], goal: ServingGoal
) -> float:
    """The share of the model's groups in the objective."""
    if goal.objective.is_maximum:
        return served.weight * served.workload.output_tokens * float(points.requests_per_s.sum())
    return sum(group_cost(each.group, zone, goal) for each, zone in zip(groups, zones, strict=True))
