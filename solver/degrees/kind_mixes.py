"""GPU kinds of pipeline ranks where a plan mixes kinds.

Consecutive pipeline ranks run on one kind, the same in every replica, and a node serves ranks of its own kind
only.  A plan takes as many ranks of the faster kinds as their nodes can hold; the rest goes to the slowest; kinds
may follow each other in any order.  A mix is considered only where it pays in sum: where the GPUs it takes have
more achievable FLOP/s together than all GPUs of any one of its kinds alone (as many as may be used).
"""

from __future__ import annotations

from itertools import permutations
from math import gcd

import numpy as np

from cluster_models.training.plan import RankOrder
from cluster_models.training.workload import TrainingWorkload
from solver.candidates import ORDER_CODES, CandidateBatch
from solver.degrees.enumeration import Grid
from solver.degrees.stage_costs import StageKinds
from solver.placement.fabric import Fabric


def stage_kinds(grid: Grid, order: RankOrder, fabric: Fabric, workload: TrainingWorkload) -> list[StageKinds]:
    """Every way to lay the pipeline ranks of ``grid`` onto all kinds of ``fabric``; none where that cannot pay."""
    counts = _ranks_by_kind(grid, order, fabric, workload)
    if (
        counts is None
        or not _pays(counts, grid, fabric, workload)
        or not _within_power(counts, grid, fabric, workload)
    ):
        return []
    return [
        tuple(kind for kind in kinds for _ in range(counts[kind])) for kinds in permutations(range(len(counts)))
    ]


def mixed_rows(
    batch: CandidateBatch, fabric: Fabric, workload: TrainingWorkload
) -> tuple[CandidateBatch, list[StageKinds]]:
    """Every candidate of ``batch`` once for each of its stage kinds, and these by row."""
    columns = (batch.tensor, batch.context, batch.pipeline, batch.data, batch.rank_order)
    shapes, shape_of = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    ways = [stage_kinds(Grid(*map(int, shape[:4])), ORDER_CODES[shape[4]], fabric, workload) for shape in shapes]
    members = np.array([len(found) for found in ways], dtype=np.int64)[shape_of.ravel()]
    rows = np.repeat(np.arange(len(batch)), members)
    return batch.take(rows), [kinds for shape in shape_of.ravel() for kinds in ways[shape]]


def node_counts(fabric: Fabric) -> list[int]:
    """Nodes of each kind."""
    return [int(count) for count in np.bincount(fabric.kind, minlength=len(fabric.kinds))]


def _rates(fabric: Fabric, workload: TrainingWorkload) -> list[float]:
    """FLOP/s of one GPU of each kind that large products reach."""
    return [kind.peak_flops.get(workload.precision, 0.0) * kind.achievable_fraction for kind in fabric.kinds]


def _ranks_by_kind(
    grid: Grid, order: RankOrder, fabric: Fabric, workload: TrainingWorkload
) -> tuple[int, ...] | None:
    """Pipeline ranks on each kind, at least one; ``None`` where its nodes or their borders do not allow it."""
    stage, size = grid.cell * grid.data, fabric.gpus_per_unit
    unit = stage if order is RankOrder.DATA_BEFORE_PIPELINE else grid.cell
    step = size // gcd(unit, size)
    if stage * grid.pipeline % size or unit * grid.pipeline % size:
        return None
    rates = _rates(fabric, workload)
    nodes = node_counts(fabric)
    fastest_first = sorted(range(len(rates)), key=lambda kind: (-rates[kind], kind))
    counts, left = [0] * len(rates), grid.pipeline
    for kind in fastest_first:
        room = nodes[kind] * size // stage // step * step
        counts[kind] = min(left, room)
        left -= counts[kind]
    return tuple(counts) if left == 0 and min(counts) > 0 and all(count % step == 0 for count in counts) else None


def _pays(counts: tuple[int, ...], grid: Grid, fabric: Fabric, workload: TrainingWorkload) -> bool:
    """Whether the mix has more FLOP/s than all GPUs of any one kind alone."""
    stage, rates = grid.cell * grid.data, _rates(fabric, workload)
    together = sum(stage * count * rate for count, rate in zip(counts, rates, strict=True))
    alone = (
        min(workload.most_gpus(kind.power_watts), nodes * fabric.gpus_per_unit) * rate
        for kind, nodes, rate in zip(fabric.kinds, node_counts(fabric), rates, strict=True)
    )
    return together > max(alone)


def _within_power(counts: tuple[int, ...], grid: Grid, fabric: Fabric, workload: TrainingWorkload) -> bool:
    """Whether the GPUs of the mix together take no more power than may be."""
    ranks = sum(counts)
    mean = sum(count * kind.power_watts for count, kind in zip(counts, fabric.kinds, strict=True)) / ranks
    return grid.cell * grid.data * ranks <= workload.most_gpus(mean)


def most_gpus_on(fabric: Fabric, workload: TrainingWorkload) -> float:
    """GPUs of ``fabric`` that the limits allow at most, were all of its kind of least power."""
    return workload.most_gpus(min(kind.power_watts for kind in fabric.kinds))


def can_mix(grid: Grid, fabric: Fabric, workload: TrainingWorkload) -> bool:
    """Whether any rank order of ``grid`` allows a mix of all kinds of ``fabric``."""
    return grid.pipeline > 1 and any(stage_kinds(grid, order, fabric, workload) for order in RankOrder)
