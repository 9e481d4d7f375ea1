"""Step time and memory of runs on nominal links: no cluster, no placement.

The planner's own prediction uses measured links and a placement; here every link between nodes has the same nominal
bandwidth.  Costs and schedules are the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce

import numpy as np

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.cluster.gpus import GpuKind
from cluster_models.training.interleaving import micro_batch_group, runs_all_forwards_first
from solver.candidates import CandidateBatch, FloatArray, batch_of, joined_batches
from solver.costs.calibration import calibration_of
from solver.costs.launching import beside_transfers
from solver.costs.local_sizes import local_sizes
from solver.costs.nominal_links import NominalLinks, crossing_s, data_parallel_s, hops_s, tensor_slowdown
from solver.costs.parameters import by_rank
from solver.costs.step_costs import StepCosts, step_costs
from solver.degrees.layout import chunk_layers
from solver.orders import BACKWARD, FORWARD, WEIGHT
from solver.pipeline.schedule import events_of_chunk
from solver.pipeline.uniform import rank_ends


@dataclass(frozen=True, slots=True)
class RunPrediction:
    """Seconds of a step and of its parts; compute, tensor and expert time are those of the busiest rank."""

    step_s: float
    pipeline_s: float
    bubble_s: float
    exposed_data_s: float
    optimizer_s: float
    compute_s: float
    tensor_s: float
    expert_s: float


@dataclass(frozen=True, slots=True)
class _Times:
    """Times of candidates on a GPU kind: (n, C) per chunk and micro-batch, (n, P) per rank and step.

    ``backward_s`` is the part for activations where the schedule runs that for weights apart, ``weight_s``, which
    else is nothing.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray
    compute_s: FloatArray
    tensor_s: FloatArray
    expert_s: FloatArray
    hops_s: FloatArray
    reduce_s: FloatArray
    gather_s: FloatArray
    optimizer_s: FloatArray


def predict_run(run: TrainingRun, fitted: FittedParameters | None = None) -> RunPrediction:
    """The step of one run; see ``predict_runs``."""
    return predict_runs([run], fitted)[0]


def predict_runs(runs: Sequence[TrainingRun], fitted: FittedParameters | None = None) -> list[RunPrediction]:
    """The steps of runs, in their order: simulated schedule, exposed gradient traffic and the optimizer.

    Runs that share model, workload, hardware and pipeline are priced together.  Where nodes have several GPU kinds,
    each stage of a replica computes at the pace of the slowest kind under it, what replicas exchange takes as long
    as on the slowest kind of all, and the slowest replica makes the step.
    """
    together: dict[object, list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        together[shared_terms(run)].append(index)
    predictions: dict[int, RunPrediction] = {}
    for indices in together.values():
        predictions |= zip(indices, _predict([runs[i] for i in indices], fitted), strict=True)
    return [predictions[index] for index in range(len(runs))]


def shared_terms(run: TrainingRun) -> object:
    """Terms that runs priced together have in common: all but their candidates."""
    degrees = run.configuration.degrees
    return (
        run.architecture,
        run.workload,
        run.gpu.name,
        tuple((group.gpu.name, group.gpus) for group in run.groups),
        (run.gpus_per_node, run.gpus_per_domain, run.network_bytes_per_s, run.flow_bytes_per_s, run.fabric),
        run.network_measured,
        (degrees.pipeline, degrees.virtual_pipeline, run.configuration.stage_layers, run.configuration.schedule),
        degrees if run.groups else None,
    )


def _predict(runs: Sequence[TrainingRun], fitted: FittedParameters | None) -> list[RunPrediction]:
    """Predictions of runs that share everything but their candidates."""
    first = runs[0]
    batch = joined_batches([batch_of(run.configuration) for run in runs])
    by_kind = {kind.name: _times(first, kind, batch, fitted) for kind in _kinds(first)}
    slowest = _slowest(list(by_kind.values()))
    replicas = [
        _stagewise([_slowest([by_kind[kind.name] for kind in kinds]) for kinds in replica])
        for replica in first.replica_kinds()
    ]
    return [_prediction(run, row, replicas, slowest) for row, run in enumerate(runs)]


def _kinds(run: TrainingRun) -> list[GpuKind]:
    return list(
        {kind.name: kind for replica in run.replica_kinds() for kinds in replica for kind in kinds}.values()
    )


def _times(run: TrainingRun, gpu: GpuKind, batch: CandidateBatch, fitted: FittedParameters | None) -> _Times:
    calibration = calibration_of(gpu, run.workload.framework, fitted)
    links = NominalLinks.of(run, gpu, calibration.domain_share)
    sizes = local_sizes(batch, run.workload, calibration)
    gathered = sizes.element_bytes * run.architecture.hidden * sizes.tokens
    costs = step_costs(
        batch,
        chunk_layers(run.architecture, run.configuration.stage_layers, run.configuration.schedule),
        architecture=run.architecture,
        workload=run.workload,
        gpu=gpu,
        gpus_per_domain=run.gpus_per_domain,
        gpus_per_node=run.gpus_per_node,
        calibration=beside_transfers(calibration, links.latency_s),
        tensor_slowdown=tensor_slowdown(links, batch, gathered),
    )
    return _with_traffic(links, batch, costs)


def _with_traffic(links: NominalLinks, batch: CandidateBatch, costs: StepCosts) -> _Times:
    crossing = crossing_s(links, costs, batch.runs)
    events = [own + beside for own, beside in zip(costs.durations_s(batch.runs), crossing, strict=True)]
    reduced, gathered = data_parallel_s(links, batch, costs)
    return _Times(
        forward_s=events[FORWARD],
        backward_s=events[BACKWARD],
        weight_s=events[WEIGHT] if len(events) > WEIGHT else np.zeros_like(costs.forward_s),
        compute_s=costs.compute_s,
        tensor_s=costs.tensor_s,
        expert_s=costs.expert_s + sum(crossing),
        hops_s=hops_s(links, batch, costs.transfer_bytes),
        reduce_s=reduced,
        gather_s=gathered,
        optimizer_s=costs.optimizer_s,
    )


def _slowest(times: Sequence[_Times]) -> _Times:
    """Each figure of the kind that takes longest."""
    if len(times) == 1:
        return times[0]
    return _Times(
        *(reduce(np.maximum, [getattr(each, column.name) for each in times]) for column in fields(_Times))
    )


def _stagewise(times: Sequence[_Times]) -> _Times:
    """A replica whose pipeline rank ``s`` takes the times of ``times[s]``."""
    if all(each is times[0] for each in times):
        return times[0]
    columns = []
    for column in fields(_Times):
        mixed = getattr(times[0], column.name).copy()
        for stage, each in enumerate(times):
            mixed[:, stage :: len(times)] = getattr(each, column.name)[:, stage :: len(times)]
        columns.append(mixed)
    return _Times(*columns)


def _prediction(run: TrainingRun, row: int, replicas: Sequence[_Times], slowest: _Times) -> RunPrediction:
    stages = run.configuration.degrees.pipeline
    micro_batches = run.configuration.micro_batches(run.workload.global_batch)
    blocking, order = run.workload.framework.blocking_transfers, run.configuration.schedule
    ends = [
        rank_ends(
            [times.forward_s[row], times.backward_s[row], times.weight_s[row]][: events_of_chunk(order)],
            times.hops_s[row],
            order=order,
            micro_batches=micro_batches,
            blocking=blocking,
            group=micro_batch_group(run.workload.framework, stages, micro_batches),
            all_forwards_first=runs_all_forwards_first(run.workload.framework),
        )
        for times in replicas
    ]
    worst = max(range(len(replicas)), key=lambda replica: float(ends[replica].max()))
    times = replicas[worst]
    busy = by_rank((times.forward_s + times.backward_s + times.weight_s)[row : row + 1], stages)[0]
    rank = int(busy.argmax())
    pipeline = float(ends[worst].max())
    reduced = float((ends[worst] + slowest.reduce_s[row]).max()) - pipeline
    optimizer = float(slowest.optimizer_s[row].max())
    tail = float((slowest.optimizer_s[row] + slowest.gather_s[row]).max())
    return RunPrediction(
        step_s=pipeline + reduced + tail,
        pipeline_s=pipeline,
        bubble_s=pipeline - micro_batches * float(busy[rank]),
        exposed_data_s=reduced + tail - optimizer,
        optimizer_s=optimizer,
        compute_s=micro_batches * float(times.compute_s[row, rank::stages].sum()),
        tensor_s=micro_batches * float(times.tensor_s[row, rank::stages].sum()),
        expert_s=micro_batches * float(times.expert_s[row, rank::stages].sum()),
    )
