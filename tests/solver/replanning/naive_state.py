"""State that moves between two plans, cell by cell with sets: slow, and written from the definitions alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import gcd, lcm

from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.training.plan import Plan, RankPlace
from cluster_models.training.workload import Sharding
from solver.costs.training_state import bytes_per_parameter, homes_of, units_of

Cell = tuple[str, str, int, int, int]
"""Kind, axis, unit, expert (or -1), and a step on the axis of a slice."""


@dataclass(frozen=True)
class NaiveMigration:
    """Bytes that nobody has, that come from other GPUs of the node, and from other nodes."""

    gone: float
    inside: float
    between: float


def naive_migration(job: RunningJob, new: Plan, lost: frozenset[tuple[str, int]]) -> NaiveMigration:
    """Bytes that move where all live copies can be used; the cells that have none are counted once."""
    grid = lcm(*(_grid(plan, job.recovery) for plan in (job.plan, new)))
    sizes = _sizes(new, grid)
    old = _rank_cells(job.plan, job.recovery, grid)
    at_gpu: dict[tuple[str, int], set[Cell]] = {}
    at_node: dict[str, set[Cell]] = {}
    for place, cells in zip(job.plan.placement.ranks, old, strict=True):
        if (place.node, place.gpu) not in lost:
            at_gpu[place.node, place.gpu] = cells
            at_node.setdefault(place.node, set()).update(cells)
    alive = set().union(*at_gpu.values())
    inside = between = 0.0
    wanted: set[Cell] = set()
    for place, cells in zip(new.placement.ranks, _rank_cells(new, job.recovery, grid), strict=True):
        wanted |= cells
        missing = cells - at_gpu.get((place.node, place.gpu), set())
        near = missing & at_node.get(place.node, set())
        inside += sum(sizes[cell[:3]] for cell in near)
        between += sum(sizes[cell[:3]] for cell in missing - near)
    return NaiveMigration(sum(sizes[cell[:3]] for cell in wanted - alive), inside, between)


def naive_rank_cells(plan: Plan, recovery: RecoveryPolicy) -> list[set[Cell]]:
    """The cells of every rank."""
    return _rank_cells(plan, recovery, _grid(plan, recovery))


def _rank_cells(plan: Plan, recovery: RecoveryPolicy, grid: int) -> list[set[Cell]]:
    """Cells of every rank; replicas share out those of ranks that a re-routed job runs without, in turn."""
    degrees, present = plan.configuration.degrees, plan.placement.ranks
    found = [_cells(place, plan, recovery, grid) for place in present]
    for part in product(range(degrees.pipeline), range(degrees.tensor), range(degrees.context)):
        live = [row for row, place in enumerate(present) if (place.pipeline, place.tensor, place.context) == part]
        replicas = {present[row].data for row in live}
        for turn, data in enumerate(sorted(set(range(degrees.data)) - replicas)):
            heir = live[turn % len(live)]
            found[heir] |= _cells(replace(present[heir], data=data), plan, recovery, grid)
    return found


def _instances(recovery: RecoveryPolicy, ranks: int) -> int:
    return gcd(recovery.optimizer_instances, ranks)


def _grid(plan: Plan, recovery: RecoveryPolicy) -> int:
    degrees = plan.configuration.degrees
    ranks = degrees.context * degrees.data
    copies = max(1, degrees.tensor * ranks // degrees.expert_block)
    experts = plan.architecture.experts.count if plan.architecture and plan.architecture.experts else 1
    return lcm(degrees.tensor * ranks, degrees.expert_tensor * degrees.expert * copies, experts)


def _sizes(plan: Plan, grid: int) -> dict[tuple[str, str, int], float]:
    assert plan.architecture is not None
    assert plan.workload is not None
    units = units_of(plan.architecture)
    weight, optimizer = bytes_per_parameter(plan.workload, plan.configuration.sharding)
    experts = 1 if plan.architecture.experts is None else plan.architecture.experts.count
    found = {}
    for unit in range(len(units.cut)):
        for kind, width in (("weights", weight), ("optimizer", optimizer)):
            found[kind, "cut", unit] = width * float(units.cut[unit]) / grid
            found[kind, "repeated", unit] = width * float(units.repeated[unit]) / grid
            found[kind, "routed", unit] = width * float(units.routed[unit]) / (experts * grid * grid)
    return found


def _cells(place: RankPlace, plan: Plan, recovery: RecoveryPolicy, grid: int) -> set[Cell]:
    configuration, architecture = plan.configuration, plan.architecture
    assert architecture is not None
    degrees, sharding = configuration.degrees, configuration.sharding
    homes, units = homes_of(architecture, configuration), units_of(architecture)
    data = place.context + degrees.context * place.data
    found: set[Cell] = set()
    for unit in range(len(units.cut)):
        if not homes[unit, place.pipeline]:
            continue
        for kind in ("weights", "optimizer"):
            is_shared = sharding is Sharding.PARAMETERS or (kind == "optimizer" and sharding is not Sharding.NONE)
            ranks = degrees.context * degrees.data
            shards = ranks // _instances(recovery, ranks) if is_shared else 1
            piece = Fraction(data % shards, shards), Fraction(data % shards + 1, shards)
            cut = [(place.tensor + end) / degrees.tensor for end in piece]
            found |= {(kind, "cut", unit, -1, step) for step in range(int(cut[0] * grid), int(cut[1] * grid))}
            found |= {
                (kind, "repeated", unit, -1, step) for step in range(int(piece[0] * grid), int(piece[1] * grid))
            }
            if units.routed[unit]:
                found |= _expert_cells(place, plan, recovery, grid, unit=unit, kind=kind, is_shared=is_shared)
    return found


def _expert_cells(
    place: RankPlace, plan: Plan, recovery: RecoveryPolicy, grid: int, *, unit: int, kind: str, is_shared: bool
) -> set[Cell]:
    """Steps of an expert's slice times steps of what shards cut of the rank's experts one after the other."""
    degrees, architecture = plan.configuration.degrees, plan.architecture
    assert architecture is not None
    assert architecture.experts is not None
    member = place.tensor + degrees.tensor * (place.context + degrees.context * place.data)
    copies = degrees.tensor * degrees.context * degrees.data // degrees.expert_block
    shards = copies // _instances(recovery, copies) if is_shared else 1
    shard = member // degrees.expert_block % shards
    within = member % degrees.expert_block
    cut, rank = within % degrees.expert_tensor, within // degrees.expert_tensor
    mine = _slots(plan.expert_slots, unit, architecture.experts.count)
    size = len(mine) // degrees.expert
    mine = mine[rank * size : (rank + 1) * size]
    steps = [(expert, step) for expert in mine for step in range(grid)]
    own = steps[shard * len(steps) // shards : (shard + 1) * len(steps) // shards]
    slices = range(cut * grid // degrees.expert_tensor, (cut + 1) * grid // degrees.expert_tensor)
    return {(kind, "routed", unit, expert, step * grid + part) for expert, step in own for part in slices}


def _slots(slots: ExpertSlots | None, layer: int, count: int) -> list[int]:
    if slots is None or layer not in slots.layers:
        return list(range(count))
    return list(slots.slots[slots.layers.index(layer)])
