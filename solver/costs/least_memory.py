"""Least bytes that a GPU holds, known before layers and micro-batches are cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.training.schedules import V_STAGES, PipelineSchedule
from cluster_models.training.workload import Offload, Sharding, TrainingWorkload
from solver.candidates import SCHEDULE_CODES, CandidateBatch, FloatArray
from solver.costs.adapters import trained_parameters
from solver.costs.calibration import Calibration
from solver.costs.communication_buffers import communicator_bytes
from solver.costs.layer_counts import all_layers
from solver.costs.local_sizes import is_sharded
from solver.costs.model_states import frozen_weights, model_states
from solver.costs.parameters import local_parameters


def least_bytes(
    batch: CandidateBatch,
    *,
    architecture: Architecture,
    workload: TrainingWorkload,
    calibration: Calibration,
) -> FloatArray:
    """(n,) bytes that the fullest GPU of each candidate holds at least, however layers and micro-batches are cut.

    Weights, gradients and optimizer states do not depend on either: the mean of their sum over the pipeline ranks,
    which candidates share, and what the run time takes.  States that ZeRO-3 shards, or that may be offloaded, are
    not counted.
    """
    whole, stages = all_layers(architecture), int(batch.pipeline[0])
    layers = np.zeros((stages, len(whole)), dtype=np.int64)
    if any(schedule.is_v_shaped for schedule in calibration.framework.schedules):
        # tied embeddings and those of predictions have no copy where the model ends on the rank that it begins on
        layers = np.zeros((V_STAGES * stages, len(whole)), dtype=np.int64)
        v_shaped = SCHEDULE_CODES.index(PipelineSchedule.ZB_V)
        batch = replace(batch, schedule=np.full(len(batch), v_shaped, dtype=np.int64))
    layers[0] = whole
    parameters = local_parameters(batch, layers, architecture)
    trained = trained_parameters(batch, layers, architecture, workload, parameters)
    states = model_states(batch, trained, workload, calibration, np.ones(len(batch), dtype=np.int64))
    frozen = frozen_weights(batch, parameters, architecture, workload, calibration)
    held = (states.weights + frozen + states.gradients + states.optimizer).mean(axis=1)
    if {*workload.offload} - {Offload.NONE, Offload.ACTIVATIONS}:
        held -= states.offloaded.total.mean(axis=1)
    held[is_sharded(batch, Sharding.PARAMETERS)] = 0.0
    return np.asarray(held + calibration.runtime_bytes + communicator_bytes(batch, calibration))
