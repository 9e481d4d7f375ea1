"""Every candidate on every fabric with its optimistic step time, its memory and its weight in the objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from cluster_models.gpus import GpuKind
from cluster_models.workload import Objective, TrainingWorkload
from solver.candidates import CandidateBatch, FloatArray, IntArray
from solver.costs.calibration import calibration_of
from solver.costs.memory import StageMemoryParts, stage_memory
from solver.costs.step_costs import StepCosts, step_costs
from solver.degrees.enumeration import enumerate_candidates
from solver.degrees.layout import Layout, balanced_layout, chunk_layers
from solver.degrees.pricing import optimistic_step_s
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class PricedCandidates:
    """``n`` candidates, one row each.

    ``fabric`` is the index of the fabric, ``bound_s`` a step time no placement can beat, ``excess_bytes`` the
    fullest GPU's need beyond its limit (negative = free) and ``weight`` what a second of step time counts in the
    objective.
    """

    batch: CandidateBatch
    fabric: IntArray
    bound_s: FloatArray
    excess_bytes: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.batch)


def layout_of(problem: PlanningProblem, batch: CandidateBatch) -> Layout:
    """The stage layers of candidates that share their pipeline and virtual pipeline sizes."""
    pipeline, virtual = int(batch.pipeline[0]), int(batch.virtual_pipeline[0])
    return balanced_layout(problem.architecture, problem.workload.sequence_length, pipeline, virtual)


def micro_batches_of(batch: CandidateBatch, workload: TrainingWorkload) -> IntArray:
    """(n,) micro-batches per pipeline and step."""
    return workload.global_batch // (batch.micro_batch * batch.data)


def costs_of(problem: PlanningProblem, fabric: Fabric, batch: CandidateBatch, layout: Layout) -> StepCosts:
    """Costs of candidates that share their pipeline and virtual pipeline sizes."""
    return step_costs(
        batch,
        chunk_layers(problem.architecture, layout),
        architecture=problem.architecture,
        workload=problem.workload,
        gpu=fabric.gpu,
        gpus_per_domain=fabric.gpus_per_node,
        gpus_per_node=fabric.gpus_per_node,
        calibration=calibration_of(fabric.gpu, problem.workload.framework, problem.fitted),
    )


def memory_of(problem: PlanningProblem, gpu: GpuKind, batch: CandidateBatch, layout: Layout) -> StageMemoryParts:
    """Memory of candidates that share their pipeline and virtual pipeline sizes."""
    return stage_memory(
        batch,
        chunk_layers(problem.architecture, layout),
        architecture=problem.architecture,
        workload=problem.workload,
        gpu=gpu,
        micro_batches=micro_batches_of(batch, problem.workload),
        calibration=calibration_of(gpu, problem.workload.framework, problem.fitted),
    )


def _excess_bytes(memory: StageMemoryParts) -> FloatArray:
    """(n,) what the fullest GPU needs beyond its limit."""
    return np.asarray((memory.total_bytes - memory.limit_bytes).max(axis=1))


def fits_memory(problem: PlanningProblem, gpu: GpuKind, *, gpus_per_node: int, nodes: int) -> bool:
    """Whether any legal candidate fits on ``nodes`` nodes, whatever its time."""
    every = enumerate_candidates(problem.architecture, problem.workload, gpus_per_node=gpus_per_node, nodes=nodes)
    for rows in _groups(every):
        batch = every.take(rows)
        if (_excess_bytes(memory_of(problem, gpu, batch, layout_of(problem, batch))) <= 0).any():
            return True
    return False


def price_candidates(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> PricedCandidates:
    """All legal candidates with their prices; none at all where no rule leaves one."""
    parts = [
        _price_group(problem, fabric, index, every.take(rows))
        for index, fabric in enumerate(fabrics)
        for every in [_candidates(problem, fabric)]
        for rows in _groups(every)
    ]
    if not parts:
        empty = np.empty(0)
        none = CandidateBatch(*(np.empty(0, dtype=np.int64) for _ in fields(CandidateBatch)))
        return PricedCandidates(none, np.empty(0, dtype=np.int64), empty, empty, empty)
    columns = [column.name for column in fields(CandidateBatch)]
    return PricedCandidates(
        batch=CandidateBatch(
            *(np.concatenate([getattr(part.batch, column) for part in parts]) for column in columns)
        ),
        fabric=np.concatenate([part.fabric for part in parts]),
        bound_s=np.concatenate([part.bound_s for part in parts]),
        excess_bytes=np.concatenate([part.excess_bytes for part in parts]),
        weight=np.concatenate([part.weight for part in parts]),
    )


def _candidates(problem: PlanningProblem, fabric: Fabric) -> CandidateBatch:
    return enumerate_candidates(
        problem.architecture, problem.workload, gpus_per_node=fabric.gpus_per_node, nodes=fabric.nodes
    )


def _groups(batch: CandidateBatch) -> list[IntArray]:
    """Rows of equal pipeline and virtual pipeline size."""
    key = batch.pipeline * (batch.virtual_pipeline.max(initial=0) + 1) + batch.virtual_pipeline
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    return [rows for rows in np.split(order, cuts) if len(rows)]


def _price_group(problem: PlanningProblem, fabric: Fabric, index: int, batch: CandidateBatch) -> PricedCandidates:
    layout = layout_of(problem, batch)
    costs = costs_of(problem, fabric, batch, layout)
    bound_s = optimistic_step_s(batch, costs, micro_batches_of(batch, problem.workload), fabric)
    return PricedCandidates(
        batch=batch,
        fabric=np.full(len(batch), index),
        bound_s=bound_s,
        excess_bytes=_excess_bytes(memory_of(problem, fabric.gpu, batch, layout)),
        weight=objective_weight(problem.workload.objective, fabric.gpu, batch),
    )


def objective_weight(objective: Objective, gpu: GpuKind, batch: CandidateBatch) -> FloatArray:
    """(n,) what one second of step time counts: 1, the GPUs used, or their price in US dollars per second."""
    gpus = (batch.tensor * batch.context * batch.data * batch.pipeline).astype(np.float64)
    match objective:
        case Objective.STEP_TIME:
            return np.ones(len(batch))
        case Objective.GPU_TIME:
            return gpus
        case Objective.COST:
            return gpus * (gpu.price_usd_per_hour or np.nan) / HOUR_S
