"""Costs and memory of candidates whose stages hold given layers on given GPU kinds."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.training.model_work import attended_length
from cluster_models.training.schedules import rows_of
from cluster_models.training.workload import Objective, RecomputeModule, TrainingWorkload
from cluster_models.units import HOUR
from solver.candidates import CandidateBatch, FloatArray, IntArray
from solver.costs.calibration import Calibration, calibration_of
from solver.costs.launching import beside_transfers
from solver.costs.layers import SizedLayers, layers_of
from solver.costs.memory import MemoryAccount, StageMemoryParts
from solver.costs.recomputation import RecomputePolicies
from solver.costs.routed_loads import RoutedLoads, routed_loads
from solver.costs.stagewise import by_stage, stagewise_costs, stagewise_memory
from solver.costs.step_costs import StepCosts, step_costs
from solver.degrees.layout import Layout, balanced_layout, chunk_layers, launchable_layout
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem

LayersByKind = tuple[SizedLayers, ...]
StageKinds = tuple[int, ...]
"""For each pipeline rank, the index of its GPU kind among those of the fabric."""


class Staging(NamedTuple):
    """Layers and GPU kind of each stage; no ``kinds`` where there is a single one."""

    layout: Layout
    kinds: StageKinds = ()


Stagings = tuple[IntArray, list[Staging]]
"""(n,) the number of each candidate's staging, and those there are."""


def layout_of(problem: PlanningProblem, batch: CandidateBatch) -> Layout:
    """Stage layers, on GPUs of one kind, of candidates that share schedule, pipeline and virtual pipeline sizes.

    As the framework can launch them; where it cannot, as it could if it took any (a configuration that was given).
    """
    model, length = problem.architecture, attended_length(problem.workload)
    sizes = int(batch.pipeline[0]), int(batch.virtual_pipeline[0])
    found = launchable_layout(model, length, *sizes, problem.workload.framework)
    layout = balanced_layout(model, length, *sizes) if found is None else found
    return rows_of(batch.runs, sizes[0], [count for row in layout for count in row])


def layers_of_all(problem: PlanningProblem, batch: CandidateBatch) -> tuple[IntArray, Stagings]:
    """Layers, (C, K) or (n, C, K), of candidates that share schedule and pipeline size, and their stagings.

    Columns behind the chunks of a candidate that has fewer than others hold none.
    """
    _, first, which = np.unique(batch.virtual_pipeline, return_index=True, return_inverse=True)
    layouts = [layout_of(problem, batch.take(row)) for row in first[:, None]]
    chunks = [chunk_layers(problem.architecture, layout, batch.runs) for layout in layouts]
    staging = which, [Staging(layout) for layout in layouts]
    if len(chunks) == 1:
        return chunks[0], staging
    most = max(map(len, chunks))
    return np.stack([np.pad(each, ((0, most - len(each)), (0, 0))) for each in chunks])[which], staging


def stagings_of(counts: IntArray, kinds: IntArray) -> Stagings:
    """The distinct stagings of layers ``counts`` (n, C) on ``kinds`` (n, P)."""
    ranks = kinds.shape[1]
    known: dict[bytes, int] = {}
    found: list[Staging] = []
    which = np.empty(len(counts), dtype=np.int64)
    for row, (held, on) in enumerate(zip(counts, kinds, strict=True)):
        key = held.tobytes() + on.tobytes()
        if key not in known:
            known[key] = len(found)
            found.append(Staging(tuple(map(tuple, held.reshape(-1, ranks).tolist())), tuple(on.tolist())))
        which[row] = known[key]
    return which, found


def micro_batches_of(batch: CandidateBatch, workload: TrainingWorkload) -> IntArray:
    """(n,) micro-batches per pipeline and step."""
    return workload.global_batch // (batch.micro_batch * batch.data)


def costs_of(
    problem: PlanningProblem,
    fabric: Fabric,
    batch: CandidateBatch,
    layers: IntArray,
    stage_kind: IntArray,
    known: LayersByKind | None = None,
) -> StepCosts:
    """Costs of candidates that share their pipeline and virtual pipeline sizes.

    ``layers``, (C, K) or (n, C, K): as ``step_costs`` takes them; ``stage_kind`` (n, P): the kind of each stage,
    not asked where ``fabric`` has a single one; ``known``: layers worked out before (``layers_by_kind``).
    """
    return stagewise_costs(costs_by_kind(problem, fabric, batch, layers, known), stage_kind)


def costs_by_kind(
    problem: PlanningProblem,
    fabric: Fabric,
    batch: CandidateBatch,
    layers: IntArray,
    known: LayersByKind | None = None,
) -> list[StepCosts]:
    """The same for each kind of ``fabric``, were all GPUs of that kind."""
    routed = _routed(problem, batch, fabric.gpus_per_unit)
    return [
        step_costs(
            batch,
            layers,
            architecture=problem.architecture,
            workload=problem.workload,
            gpu=kind,
            gpus_per_domain=fabric.gpus_per_unit,
            gpus_per_node=fabric.gpus_per_node,
            calibration=_calibration(problem, fabric, kind),
            routed=routed,
            known=None if known is None else known[index],
        )
        for index, kind in enumerate(fabric.kinds)
    ]


def memory_of(
    problem: PlanningProblem,
    kinds: Sequence[GpuKind],
    batch: CandidateBatch,
    layers: IntArray,
    stage_kind: IntArray,
    *,
    domain: int,
) -> StageMemoryParts:
    """Memory of candidates that share their pipeline and virtual pipeline sizes; see ``costs_of``.

    ``domain``: GPUs that NVLink joins.
    """
    accounts = memory_accounts(problem, kinds, batch, layers, domain)
    policies = RecomputePolicies.of(batch, problem.workload.framework)
    return stagewise_memory([account.parts(policies) for account in accounts], stage_kind)


def excess_bytes_of(
    problem: PlanningProblem,
    kinds: Sequence[GpuKind],
    batch: CandidateBatch,
    layers: IntArray,
    stage_kind: IntArray,
    *,
    domain: int,
) -> FloatArray:
    """(n, P) what a GPU of each stage of the same candidates needs beyond its limit."""
    accounts = memory_accounts(problem, kinds, batch, layers, domain)
    policies = RecomputePolicies.of(batch, problem.workload.framework)
    return by_stage([account.excess_bytes(policies) for account in accounts], stage_kind)


def memory_accounts(
    problem: PlanningProblem,
    kinds: Sequence[GpuKind],
    batch: CandidateBatch,
    layers: IntArray,
    domain: int,
    spread: IntArray | None = None,
) -> list[MemoryAccount]:
    """The account of candidates for each kind, were all GPUs of that kind, whatever they recompute.

    Candidates with equal ``spread`` (n,) have equal ``layers``.
    """
    routed = _routed(problem, batch, domain)
    return [
        MemoryAccount.of(
            batch,
            layers,
            architecture=problem.architecture,
            workload=problem.workload,
            gpu=kind,
            micro_batches=micro_batches_of(batch, problem.workload),
            calibration=calibration_of(kind, problem.workload.framework, problem.fitted),
            routed=routed,
            spread=spread,
        )
        for kind in kinds
    ]


def layers_by_kind(
    problem: PlanningProblem, fabric: Fabric, batch: CandidateBatch, modules: AbstractSet[RecomputeModule]
) -> LayersByKind:
    """Sizes and layers of any candidates for each kind; ``modules`` are those that they may run again."""
    routed = _routed(problem, batch, fabric.gpus_per_unit)
    return tuple(
        layers_of(
            batch,
            architecture=problem.architecture,
            workload=problem.workload,
            gpu=kind,
            domain=max(fabric.gpus_per_unit, fabric.gpus_per_node),
            calibration=_calibration(problem, fabric, kind),
            modules=modules,
            routed=routed,
        )
        for kind in fabric.kinds
    )


def _calibration(problem: PlanningProblem, fabric: Fabric, kind: GpuKind) -> Calibration:
    framework = problem.workload.framework
    latency_s = fabric.network_latency_s if framework.blocking_transfers else 0.0
    return beside_transfers(calibration_of(kind, framework, problem.fitted), latency_s)


def _routed(problem: PlanningProblem, batch: CandidateBatch, domain: int) -> RoutedLoads | None:
    return routed_loads(
        problem.routing, problem.architecture, batch, domain=domain, keep_order=problem.keep_expert_order
    )


def kind_rows(batch: CandidateBatch, kinds: StageKinds = ()) -> IntArray:
    """(n, P) stage kinds of candidates that share them: ``kinds``, or the first everywhere where there are none."""
    pipeline = int(batch.pipeline[0])
    return np.tile(np.array(kinds or (0,) * pipeline, dtype=np.int64), (len(batch), 1))


def objective_weight(
    objective: Objective, kinds: Sequence[GpuKind], batch: CandidateBatch, stage_kind: IntArray
) -> FloatArray:
    """(n,) what one second of step time counts: 1, the GPUs used, their price in USD per second, or their watts."""
    stage = batch.tensor * batch.context * batch.data
    match objective:
        case Objective.STEP_TIME:
            return np.ones(len(batch))
        case Objective.GPU_TIME:
            return (stage * batch.pipeline).astype(np.float64)
        case Objective.COST:
            price = np.zeros(len(batch))
            for index, kind in enumerate(kinds):
                gpus = stage * (stage_kind == index).sum(axis=1)
                price += gpus * (kind.price_usd_per_hour or np.nan)
            return price / HOUR
        case Objective.ENERGY:
            watts = np.array([kind.power_watts for kind in kinds])
            return np.asarray(stage * watts[stage_kind].sum(axis=1))
