"""Weights, gradients and optimizer states on every pipeline rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from cluster_models.cluster.gpus import Precision
from cluster_models.model.architecture import Architecture
from cluster_models.training.adapters import NF4_BYTES, FrozenFormat
from cluster_models.training.framework_choices import OptimizerOffload
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.candidates import CandidateBatch, FloatArray, IntArray
from solver.costs.calibration import Calibration
from solver.costs.data_parallel import reduces_each_micro_batch
from solver.costs.host_offload import (
    HostStates,
    disk_bytes,
    gradients_leave,
    host_states_bytes,
    may_offload,
    parameters_leave,
)
from solver.costs.local_sizes import is_sharded
from solver.costs.parameters import LocalParameters, owned_parameters, sharing_ranks

_MASTER_BYTES: Final = 4.0
"""An FP32 weight, with Adam 18 bytes in all where gradients are FP32 (Megatron-LM's distributed optimizer
documentation)."""
_WIDENED_BYTES: Final = 4.0
WEIGHT_BYTES: Final = {Precision.MXFP8: 2.0 * (1.0 + 1.0 / 32.0), Precision.FP32: 4.0}
"""Bytes of a weight as products read it, 2 unless listed: 16 bits, or an 8-bit weight and its transpose
(Transformer Engine with FP8 parameters, Megatron's ``--fp8-param-gather``, which NVIDIA's FP8 recipes set); MXFP8
has a scale for every 32 elements of both copies."""


class StateBytes(NamedTuple):
    """Bytes a parameter that the optimizer keeps of its ``moments`` and of a ``master`` copy of the weight.

    ``shard``: of a weight that is its own master copy where parameters are sharded (PyTorch FSDP).  ``tables``: of
    further moments of embedding and head.
    """

    moments: float
    master: float
    shard: float
    tables: float = 0.0


def state_bytes(workload: TrainingWorkload) -> StateBytes:
    """States of a workload: two moments of Adam and adaptive Muon, one of SGD, and of Muon and Lion in layers.

    FP32 training has no other weight; frameworks with ``sixteen_bit_states`` keep all in half the bytes.  Nothing
    of zeroth-order training, whose 16-bit weights are the only ones.
    """
    if not workload.optimizer.runs_backward:
        return StateBytes(0.0, 0.0, 0.0)
    states, framework = workload.optimizer_states, workload.framework
    two = workload.optimizer.has_second_moment
    second = states.second_moment.nbytes * two
    share = 0.5 if framework.sixteen_bit_states else 1.0
    no_master = workload.precision is Precision.FP32 or framework.sixteen_bit_states
    return StateBytes(
        moments=share * (states.first_moment.nbytes + second),
        master=0.0 if no_master else states.master_weight.nbytes,
        shard=share * _MASTER_BYTES,
        tables=share * states.second_moment.nbytes * (workload.optimizer.takes_matrices and not two),
    )


def step_bytes(workload: TrainingWorkload) -> float:
    """Bytes per owned parameter that are alive while the optimizer steps, FP32 copies of narrow states included.

    Without a backward pass of the largest tensor alone: its direction, a factor times that and the sum in 16 bits.
    """
    if not workload.optimizer.runs_backward:
        return 6.0
    return workload.framework.step_bytes + _WIDENED_BYTES * workload.optimizer_states.widened


@dataclass(frozen=True, slots=True)
class ModelStates:
    """Bytes (n, P) of what outlives a micro-batch, and parameters ``owned`` after sharding.

    ``offloaded``: what of it all offloaded states would take to the node's memory.
    """

    weights: FloatArray
    gradients: FloatArray
    optimizer: FloatArray
    owned: FloatArray
    offloaded: HostStates


def model_states(
    batch: CandidateBatch,
    parameters: LocalParameters,
    workload: TrainingWorkload,
    calibration: Calibration,
    micro_batches: IntArray,
    *,
    least_owned: FloatArray | float = 0.0,
) -> ModelStates:
    """ZeRO-3 adds two gathered layers and what lies outside layers, and gradients of one layer and of that.

    PyTorch FSDP keeps an FP32 shard alone; its pipelines gather once and reduce after the last micro-batch
    (``torch.distributed.pipelining``, ``backward_maybe_with_nosync``).  Gradients that are reduced once are summed
    whole over several micro-batches; those of ZeRO-2 stay on their owner alone once their layer is through (arXiv
    1910.02054, section 5.2).  Reference and reward models are weights alone, shared out as the trained
    ones are; with adapters the reference is the frozen one without them (TRL).  A critic has all that the policy
    has.  A rank owns no less than ``least_owned`` (n,) parameters.
    """
    framework, fp32 = calibration.framework, workload.precision is Precision.FP32
    whole = parameters.common + parameters.routed
    owned = np.maximum(owned_parameters(batch, parameters, framework), np.asarray(least_owned)[..., None])
    layer = parameters.largest_layer[:, None]
    zero3 = is_sharded(batch, Sharding.PARAMETERS)[:, None]
    stays_whole = framework.sharded_master & (batch.pipeline > 1)[:, None]
    gathered = np.where(stays_whole, whole, np.minimum(whole, 2.0 * layer + parameters.tables))
    sums_whole = stays_whole | (framework.reduces_once & (micro_batches > 1))[:, None]
    last = whole if framework.reduces_once else whole + owned
    passing = np.minimum(whole, owned + layer + parameters.tables)
    owners = reduces_each_micro_batch(batch, framework)[:, None]
    summed = np.where(zero3 & sums_whole, last, np.where(zero3 | owners, passing, whole))
    weight_bytes = WEIGHT_BYTES.get(workload.precision, 2.0)
    kept = state_bytes(workload)
    if framework.sharded_master:
        sharded = kept.shard * owned + weight_bytes * gathered
    else:
        sharded = weight_bytes * np.minimum(whole, owned + gathered)
    master = np.where(zero3 & framework.sharded_master, 0.0, kept.master)
    gradient_bytes = max(framework.gradient_bytes, workload.precision.activation_bytes if fp32 else 0.0)
    gradient_bytes = (gradient_bytes + framework.own_gradient_bytes) * workload.optimizer.runs_backward
    copies = workload.roles.frozen(workload.method) * (workload.adapters is None)
    reference = copies * weight_bytes * np.where(zero3, owned, whole)
    critics = workload.roles.trained - 1
    critic = np.where(
        zero3, (kept.shard if framework.sharded_master else weight_bytes) * owned, weight_bytes * whole
    )
    optimizer = (kept.moments + master) * owned
    if kept.tables:
        optimizer = optimizer + kept.tables * parameters.tables / sharing_ranks(batch, framework)[0][:, None]
    may = may_offload(batch, workload)[:, None]
    stays = np.where(stays_whole, whole, layer + parameters.tables)
    shards = owned * ~parameters_leave(batch) * (framework.optimizer_offload is OptimizerOffload.STATES)
    here = weight_bytes * (shards + gathered if framework.sharded_master else np.minimum(whole, shards + gathered))
    leaves = may & gradients_leave(batch, framework.optimizer_offload)[:, None]
    return ModelStates(
        weights=np.where(zero3, sharded, weight_bytes * whole) + reference + critics * critic,
        gradients=(1 + critics) * gradient_bytes * summed,
        optimizer=(1 + critics) * optimizer,
        owned=owned,
        offloaded=HostStates(
            weights=np.where(may & zero3, sharded - here, 0.0),
            gradients=np.where(leaves, gradient_bytes * np.maximum(summed - stays, 0.0), 0.0),
            optimizer=may * optimizer,
            host=may * host_states_bytes(batch, owned),
            disk=may * disk_bytes(batch, owned),
        ),
    )


def frozen_weights(
    batch: CandidateBatch,
    parameters: LocalParameters,
    architecture: Architecture,
    workload: TrainingWorkload,
    calibration: Calibration,
) -> FloatArray:
    """(n, P) bytes of weights that no step changes; with ZeRO-3 shards and what is gathered, as of trained ones.

    Embedding and head are not quantised.  Products of quantised weights make one matrix at a time in 16 bits.
    """
    if workload.adapters is None:
        return np.zeros_like(parameters.common)
    wide = WEIGHT_BYTES.get(workload.precision, 2.0)
    quantised = workload.frozen_weights is FrozenFormat.NF4
    narrow, tables = NF4_BYTES if quantised else wide, wide * parameters.tables
    linear = parameters.common - parameters.tables
    common_ranks, routed_ranks = (ranks[:, None] for ranks in sharing_ranks(batch, calibration.framework))
    whole = narrow * (linear + parameters.routed) + tables
    owned = narrow * (linear / common_ranks + parameters.routed / routed_ranks) + tables / common_ranks
    gathered = narrow * 2.0 * parameters.largest_layer[:, None] + tables
    stays_whole = calibration.framework.sharded_master & (batch.pipeline > 1)[:, None]
    sharded = np.where(stays_whole, owned + whole, np.minimum(whole, owned + gathered))
    held = np.where(is_sharded(batch, Sharding.PARAMETERS)[:, None], sharded, whole)
    return np.asarray(held + quantised * wide * largest_matrix(architecture, batch)[:, None])


def largest_matrix(architecture: Architecture, batch: CandidateBatch) -> FloatArray:
    """(n,) weights of the largest matrix of a layer on one GPU."""
    width = max(architecture.mlp_hidden, architecture.heads * max(architecture.head_widths))
    largest = architecture.hidden * width / batch.tensor
    if (experts := architecture.experts) is not None:
        largest = np.maximum(largest, architecture.expert_width * experts.hidden / batch.expert_tensor)
    return np.asarray(largest)
