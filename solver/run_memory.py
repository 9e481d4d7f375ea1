"""Peak memory of a run: against each GPU's size, and as the counter that measured it would show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.calibration.training_run import MemoryCounter, TrainingRun
from cluster_models.cluster.gpus import GpuKind
from solver.candidates import FloatArray, batch_of
from solver.costs.activations import kept_activations, layer_tensors
from solver.costs.calibration import calibration_of
from solver.costs.communication_buffers import communicator_bytes, user_buffer_bytes
from solver.costs.local_sizes import local_sizes
from solver.costs.memory import StageMemoryParts, stage_memory
from solver.costs.recomputation import RecomputePolicies
from solver.degrees.layout import chunk_layers

ROUNDING: Final = 1e-9


def predict_peak_memory(run: TrainingRun, fitted: FittedParameters | None = None) -> float:
    """Peak bytes on the fullest GPU, as its driver counts them."""
    return max(float(parts.total_bytes[0, stage]) for stage, _, parts in _by_stage(run, fitted))


def predict_fits(run: TrainingRun, fitted: FittedParameters | None = None) -> bool:
    """Whether every GPU holds what its pipeline rank needs."""
    return all(
        float(parts.total_bytes[0, stage]) <= gpu.memory_bytes * (1.0 + ROUNDING)
        for stage, gpu, parts in _by_stage(run, fitted)
    )


def predict_counted_memory(run: TrainingRun, fitted: FittedParameters | None = None) -> float:
    """Peak bytes as ``run.memory_counter`` counts them, on ``run.memory_stage`` or the fullest pipeline rank."""
    stages = run.configuration.degrees.pipeline
    wanted = range(stages) if run.memory_stage is None else (run.memory_stage % stages,)
    return max(
        float(_counted(run, gpu, parts, fitted)[0, stage])
        for stage, gpu, parts in _by_stage(run, fitted)
        if stage in wanted
    )


def _by_stage(run: TrainingRun, fitted: FittedParameters | None) -> Iterator[tuple[int, GpuKind, StageMemoryParts]]:
    """Every pipeline rank with each GPU kind under it and the account of all ranks on such GPUs."""
    accounts: dict[str, StageMemoryParts] = {}
    for replica in run.replica_kinds():
        for stage, kinds in enumerate(replica):
            for gpu in kinds:
                if gpu.name not in accounts:
                    accounts[gpu.name] = _account(run, gpu, fitted)
                yield stage, gpu, accounts[gpu.name]


def _account(run: TrainingRun, gpu: GpuKind, fitted: FittedParameters | None) -> StageMemoryParts:
    return stage_memory(
        batch_of(run.configuration),
        chunk_layers(run.architecture, run.configuration.stage_layers, run.configuration.schedule),
        architecture=run.architecture,
        workload=run.workload,
        gpu=gpu,
        micro_batches=np.array([run.configuration.micro_batches(run.workload.global_batch)]),
        calibration=calibration_of(gpu, run.workload.framework, fitted),
        offloaded_layers=run.offloaded_layers,
    )


def _counted(
    run: TrainingRun, gpu: GpuKind, parts: StageMemoryParts, fitted: FittedParameters | None
) -> FloatArray:
    """(1, P) bytes as the run's counter shows them."""
    if run.memory_counter is MemoryCounter.DRIVER:
        return parts.total_bytes
    calibration = calibration_of(gpu, run.workload.framework, fitted)
    batch = batch_of(run.configuration)
    sizes = local_sizes(batch, run.workload, calibration, most=True)
    outside = communicator_bytes(batch, calibration)
    outside = outside + user_buffer_bytes(sizes, run.architecture, calibration.framework)
    reserved = parts.total_bytes - parts.runtime_bytes - outside[:, None]
    if run.memory_counter is MemoryCounter.RESERVED:
        return np.asarray(reserved)
    if run.memory_counter is MemoryCounter.ALLOCATED:
        return np.asarray(reserved - parts.fragmentation_bytes)
    tensors = layer_tensors(run.architecture, sizes, calibration)
    policies = RecomputePolicies.of(batch, calibration.framework)
    kept = kept_activations(run.architecture, sizes, calibration, tensors, policies)
    states = parts.weights_bytes + parts.gradients_bytes + parts.optimizer_bytes
    return np.asarray(states + parts.activations_bytes - kept.working[:, None])
