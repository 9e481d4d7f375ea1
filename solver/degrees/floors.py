"""Families of candidates, and floors: step time and memory that none of them can beat, known before any is priced.

A family is what differs in its schedule and in several virtual stages alone: candidates without, or all with them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.model.flops import BACKWARD_TO_FORWARD, layer_forward_flops
from cluster_models.training.mixed_lengths import Balance
from cluster_models.training.workload import Objective, TrainingWorkload
from cluster_models.units import HOUR
from solver.candidates import BoolArray, CandidateBatch, FloatArray, IntArray, joined_batches
from solver.costs.attended import least_step_tokens
from solver.costs.calibration import calibration_of
from solver.costs.compute import processor
from solver.costs.layer_counts import all_layers
from solver.costs.least_memory import least_bytes
from solver.costs.straggling import straggling
from solver.degrees.enumeration import Shape, families_of
from solver.degrees.memory_mixes import FULL, Mix, with_mix
from solver.degrees.mix_rivals import overlaps
from solver.degrees.priced import worlds_on
from solver.degrees.row_groups import MOST_CELLS
from solver.degrees.stage_costs import LayersByKind, costs_of, layers_by_kind, micro_batches_of
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem

MOST_CODES: Final = 2**62
"""Numbers of distinct rows stay below this."""


class World(NamedTuple):
    """Candidates with so many GPUs on a fabric; ``floor``: an objective that none of them beats."""

    floor: float
    fabric: int
    gpus: int


def worlds(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> list[World]:
    """Every world on fabrics with GPUs of one kind, the lowest floor first."""
    found: list[World] = []
    for index, fabric in enumerate(fabrics):
        if not fabric.is_mixed:
            gpus = np.array(worlds_on(problem, fabric), dtype=np.int64)
            floors = floors_s(problem, fabric.gpu, gpus, fabric.gpus_per_node)
            floors *= _weight(problem.workload.objective, fabric.gpu, gpus)
            found += [World(floor, index, size) for floor, size in zip(floors.tolist(), gpus.tolist(), strict=True)]
    return sorted(found)


def mixed_floor(problem: PlanningProblem, fabric: Fabric) -> float:
    """An objective that no candidate on a fabric with GPUs of several kinds beats.

    All GPUs together do no more work a second than each kind alone, added up; and no GPU does more for what it
    counts than one of the best kind.
    """
    objective, node = problem.workload.objective, fabric.gpus_per_node
    counts = np.bincount(fabric.kind, minlength=len(fabric.kinds)) * fabric.gpus_per_unit
    if objective is not Objective.STEP_TIME:
        counts = np.ones_like(counts)
    floors = [
        float((floors_s(problem, gpu, count, node) * _weight(objective, gpu, count))[0])
        for gpu, count in zip(fabric.kinds, counts[:, None], strict=True)
    ]
    return 1 / sum(1 / floor for floor in floors) if objective is Objective.STEP_TIME else min(floors)


def _weight(objective: Objective, gpu: GpuKind, gpus: IntArray) -> FloatArray:
    """(n,) what a second of a step on ``gpus`` (n,) counts in the objective."""
    match objective:
        case Objective.STEP_TIME:
            return np.ones(len(gpus))
        case Objective.GPU_TIME:
            return gpus.astype(np.float64)
        case Objective.COST:
            return np.asarray(gpus * (gpu.price_usd_per_hour or np.nan) / HOUR)
        case Objective.ENERGY:
            return np.asarray(gpus * gpu.power_watts)


def floors_s(problem: PlanningProblem, gpu: GpuKind, gpus: IntArray, gpus_per_node: int) -> FloatArray:
    """(n,) seconds that no step on ``gpus`` (n,) takes less than: the layers' matrix products at full rate.

    Each runs three times, once forward and twice backward, or once backward where weights are frozen, and once more
    in a reference model; or twice forward alone (MeZO).  Head, attention scores, transfers and everything bound by
    memory come on top.
    """
    architecture, workload = problem.architecture, problem.workload
    calibration = calibration_of(gpu, workload.framework, problem.fitted)
    per_token = 0.0
    for kind, layers in Counter(architecture.layer_pattern).items():
        part = layer_forward_flops(architecture, workload.sequence_length, kind)
        routed = part.routed_experts * min(1.0, calibration.expert_imbalance)
        per_token += layers * (part.attention_projections + part.dense_mlp + part.shared_experts + routed)
    rate = processor(gpu, workload.precision, calibration).matmul_flops * max(1.0, calibration.grouped_share)
    backward = BACKWARD_TO_FORWARD * workload.optimizer.runs_backward
    products = workload.forward_passes + backward - (workload.adapters is not None)
    flops = products * per_token * least_step_tokens(workload)
    return np.asarray(straggling(gpus / gpus_per_node, calibration) * flops / (rate * gpus))


def family_sizes(problem: PlanningProblem, families: CandidateBatch) -> IntArray:
    """(n,) candidates of each family: those without virtual stages, or all with several."""
    rounds = micro_batches_of(families, problem.workload)
    several = (families.virtual_pipeline > 1).astype(np.int64)
    _, first, shape_of = _distinct(families.pipeline, rounds, several)
    shapes = zip(*(each[first].tolist() for each in (families.pipeline, rounds, several)), strict=True)
    counts = [len(_members(problem, pipeline, count, virtual > 0)) for pipeline, count, virtual in shapes]
    return np.array(counts, dtype=np.int64)[shape_of]


def _members(problem: PlanningProblem, pipeline: int, micro_batches: int, several: bool) -> Sequence[Shape]:
    """Shapes of the family with several virtual stages, or of that without."""
    legal = families_of(problem.architecture, problem.workload, pipeline, micro_batches)
    return next((members for members in legal if (members[0].virtual > 1) == several), ())


def _distinct(*columns: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Distinct rows of ``columns``, (n,) each: numbers, the first row of each, and (n,) which one each row is."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        size = int(column.max(initial=0)) + 1
        if int(codes.max(initial=0)) + 1 > MOST_CODES // size:
            codes = np.unique(codes, return_inverse=True)[1].reshape(-1)
        codes = codes * size + column
    return np.unique(codes, return_index=True, return_inverse=True)


def family_floors(problem: PlanningProblem, fabric: Fabric, families: CandidateBatch) -> FloatArray:
    """(n,) objective that no member of each family beats.

    The work of all ranks does not depend on how layers are spread, so that pipelines are priced as if they had two
    ranks; that can only make them faster, for fewer GPUs straggle less and fewer transfers leave a domain.  Where
    dispatch runs beside compute, members that dispatch again do without, which may be quicker.
    """
    floors = np.empty(len(families))
    problem = _evenly_dealt(problem)
    whole, last = all_layers(problem.architecture), problem.architecture.kind_numbers[-1]
    for piped, code in product((False, True), np.unique(families.settings).tolist()):
        rows = np.flatnonzero(((families.pipeline > 1) == piped) & (families.settings == code))
        for first in range(0, len(rows), MOST_CELLS // 2):
            own = rows[first : first + MOST_CELLS // 2]
            batch = families.take(own)
            ranks = 2 if piped else 1
            layers = np.zeros((ranks, len(whole)), dtype=np.int64)
            layers[-1, last] = problem.architecture.prediction_layers
            layers[0] += whole - layers[-1]
            kinds = np.zeros((len(own), ranks), dtype=np.int64)
            short = replace(
                batch, pipeline=np.full(len(own), ranks, dtype=np.int64), schedule=np.zeros_like(batch.schedule)
            )
            known: list[LayersByKind | None] = [None]
            if overlaps(problem, short).any():
                known.append(layers_by_kind(problem, fabric, with_mix(short, Mix(FULL)), frozenset()))
            costs = [costs_of(problem, fabric, short, layers, kinds, each) for each in known]
            work_s = np.minimum.reduce([(each.forward_s + each.backward_s).sum(axis=1) for each in costs])
            gpus = batch.tensor * batch.context * batch.data * batch.pipeline
            weight = _weight(problem.workload.objective, fabric.gpu, gpus)
            mean_s = work_s / batch.pipeline * micro_batches_of(batch, problem.workload)
            floors[own] = mean_s * least_waits(problem.workload, batch) * weight
    return floors


def least_waits(workload: TrainingWorkload, families: CandidateBatch) -> FloatArray:
    """(n,) how many times as long as the mean work of a rank in its ``m`` micro-batches a step takes at least.

    Some of the P ranks works as long as the mean.  Without virtual stages and with backward passes in one piece
    rank s also waits for a forward pass of each rank before it, and they for its last backward pass: a step takes
    T >= m w_s + sum of w_t over t < s.  Ranks whose work falls by 1 - 1/m from each to the next meet all of that
    with equality, and no other shares of the same work allow a lower T.
    """
    if any(each.splits_backward for each in {*workload.schedule} & {*workload.framework.schedules}):
        return np.ones(len(families))
    share = 1.0 / micro_batches_of(families, workload)
    piped = families.pipeline * share / (1.0 - (1.0 - share) ** families.pipeline)
    return np.where(families.virtual_pipeline == 1, piped, 1.0)


def _evenly_dealt(problem: PlanningProblem) -> PlanningProblem:
    """The problem whose data ranks never wait for longer documents of others."""
    if (lengths := problem.workload.lengths) is None:
        return problem
    return replace(problem, workload=replace(problem.workload, lengths=replace(lengths, balance=Balance.EVEN)))


def other_members(problem: PlanningProblem, families: CandidateBatch) -> Iterator[CandidateBatch]:
    """The members of families beside the one that stands for them, by their shape."""
    rounds, several = micro_batches_of(families, problem.workload), families.virtual_pipeline > 1
    kinds = sorted(set(zip(families.pipeline.tolist(), rounds.tolist(), several.tolist(), strict=True)))
    by_shape: dict[Shape, list[CandidateBatch]] = {}
    for pipeline, count, virtual in kinds:
        own = families.take((families.pipeline == pipeline) & (rounds == count) & (several == virtual))
        for shape in _members(problem, pipeline, count, virtual)[1:]:
            by_shape.setdefault(shape, []).append(in_shape(own, shape))
    for _, members in sorted(by_shape.items()):
        yield joined_batches(members)


def in_shape(batch: CandidateBatch, shape: Shape) -> CandidateBatch:
    """``batch`` with another number of virtual stages and another schedule."""
    virtual, schedule = (np.full(len(batch), value, dtype=np.int64) for value in shape)
    return replace(batch, virtual_pipeline=virtual, schedule=schedule)


def too_large(problem: PlanningProblem, gpu: GpuKind, families: CandidateBatch) -> BoolArray:
    """(n,) whether weights, gradients and optimizer states alone are more than a GPU may hold."""
    columns = (
        families.pipeline,
        families.tensor,
        families.data,
        families.context,
        families.expert,
        families.expert_tensor,
        families.sharding,
    )
    _, first, shape_of = _distinct(*columns)
    shapes = families.take(first)
    calibration = calibration_of(gpu, problem.workload.framework, problem.fitted)
    held = np.empty(len(shapes))
    for pipeline in np.unique(shapes.pipeline):
        rows = shapes.pipeline == pipeline
        held[rows] = least_bytes(
            shapes.take(rows),
            architecture=problem.architecture,
            workload=problem.workload,
            calibration=calibration,
        )
    limit = gpu.memory_bytes * (1.0 - problem.workload.memory_headroom)
    return np.asarray((held > limit)[shape_of])
