"""Optimizer states and activations in the nodes' memory: bytes that leave a GPU, and seconds that they take.

Formulas and sources: docs/memory_options.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from cluster_models.cluster.hosts import HostShare
from cluster_models.training.framework_choices import OptimizerOffload
from cluster_models.training.offload import (
    ALL_ON_DISKS,
    ON_DISKS,
    WITH_PARAMETERS,
    offload_refusal,
    offloads_with,
)
from cluster_models.training.workload import WHOLE_OFFLOAD, Sharding, TrainingWorkload
from solver.candidates import SHARDING_CODES, BoolArray, CandidateBatch, FloatArray, IntArray
from solver.costs.local_sizes import is_sharded

LINK_SHARE: Final = 0.78
"""Share of a link's nominal rate that copies reach: overlapping them saves 0.312 s of 15.3 GB a GPU on PCIe 5
(Megatron-Bridge's page on CPU offloading); 12 GB/s on PCIe 3 (arXiv 2104.07857, section 4)."""
UPDATE_SHARE: Final[Mapping[OptimizerOffload, float]] = MappingProxyType(
    {OptimizerOffload.SHARE: 0.24, OptimizerOffload.SHARDS: 0.24, OptimizerOffload.STATES: 0.42}
)
"""Share of the memory's nominal bandwidth at which Adam runs: PyTorch's fused one 2.88 s for 15.3e9 parameters of a
node with 614 GB/s (same page), DeepSpeed's 2.57 s for 10e9 on 256 GB/s (arXiv 2101.06840, table 4)."""
HOST_SHARE: Final = 0.8
"""Share of a node's memory that offloaded states may fill: the rest is the system's, the data loader's and for
checkpoints on their way."""
UPDATE_BYTES: Final = 28.0
"""Bytes through memory for each parameter: weight, gradient and moments read, weight and moments written, FP32."""
_NARROWING_BYTES: Final = 6.0
"""A weight that stays in the node's memory is read in FP32 and written in 16 bits after its update."""
CLIP_BYTES: Final = 12.0
"""Where gradients are in the node's memory when they are clipped: read for their norm, read and written."""
STATE_BYTES: Final = 16.0
"""Bytes in the node's memory for each parameter: weight, gradient and moments, FP32."""
_SUB_GROUP: Final = 1e9
_PARAMETER_BUFFERS: Final = 5e8 + 1e9
"""Weights in memory beside those on disks: ``buffer_count`` 5 of ``buffer_size`` 1e8, and ``max_in_cpu`` 1e9."""
_SHARD_BYTES: Final = 4.0
"""FSDP copies its shards in FP32 and casts them on the GPU (``_fsdp_param.py``, ``all_gather_inputs``)."""
_WEIGHT_BYTES: Final = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class HostStates:
    """Bytes (n, P) that leave a GPU where all states are offloaded, and that it fills in the node.

    There ``host`` in memory and ``disk`` on disks.  All zero where a candidate cannot offload.
    """

    weights: FloatArray
    gradients: FloatArray
    optimizer: FloatArray
    host: FloatArray
    disk: FloatArray

    @property
    def total(self) -> FloatArray:
        """Bytes that leave a GPU."""
        return self.weights + self.gradients + self.optimizer


def may_offload(batch: CandidateBatch, workload: TrainingWorkload) -> BoolArray:
    """(n,) which candidates can offload optimizer states."""
    if offload_refusal(workload):
        return np.zeros(len(batch), dtype=np.bool_)
    style = workload.framework.optimizer_offload
    return np.array([offloads_with(style, sharding) for sharding in SHARDING_CODES])[batch.sharding]


def offload_share(batch: CandidateBatch, workload: TrainingWorkload) -> FloatArray:
    """(n, 1) share of the states that each candidate offloads, none where it cannot."""
    return as_share(np.where(may_offload(batch, workload), batch.optimizer_offload, 0)[:, None])


def as_share(percent: IntArray) -> FloatArray:
    """Shares that percents stand for: codes of ``STAGE_THREE`` for all."""
    return np.minimum(percent, WHOLE_OFFLOAD) / WHOLE_OFFLOAD


def on_disks(batch: CandidateBatch) -> BoolArray:
    """(n, 1) whether the states live on the nodes' disks."""
    return np.isin(batch.optimizer_offload, (ON_DISKS, ALL_ON_DISKS))[:, None]


def parameters_leave(batch: CandidateBatch) -> BoolArray:
    """(n, 1) whether 16-bit shards of weights live with the states (DeepSpeed's ``offload_param``)."""
    return np.asarray(batch.optimizer_offload >= WITH_PARAMETERS)[:, None]


def host_states_bytes(batch: CandidateBatch, owned: FloatArray) -> FloatArray:
    """(n, P) bytes in the node's memory of what it has of ``owned`` (n, P) parameters.

    Beside disks DeepSpeed has buffers there for weight, gradient and moments of one group of parameters at a time
    (``buffer_count`` 4 and ``sub_group_size`` 1e9 by default), and for 16-bit weights that live there.
    """
    most, weights = np.where(on_disks(batch), (_SUB_GROUP, _PARAMETER_BUFFERS), np.inf).T[..., None]
    states = STATE_BYTES * np.minimum(owned, most)
    return np.asarray(states + _WEIGHT_BYTES * parameters_leave(batch) * np.minimum(owned, weights))


def disk_bytes(batch: CandidateBatch, owned: FloatArray) -> FloatArray:
    """(n, P) bytes on the node's disks of ``owned`` (n, P) parameters."""
    return np.asarray(on_disks(batch) * (STATE_BYTES + _WEIGHT_BYTES * parameters_leave(batch)) * owned)


def gradients_leave(batch: CandidateBatch, style: OptimizerOffload) -> BoolArray:
    """(n,) whether offloaded states take the gradients with them in each micro-batch (ZeRO-2, FSDP)."""
    if style is OptimizerOffload.SHARE:
        return np.zeros(len(batch), dtype=np.bool_)
    return ~is_sharded(batch, Sharding.OPTIMIZER)


def waiting_activations_s(
    host: HostShare, waiting_bytes: FloatArray, *, forward_s: FloatArray, backward_s: FloatArray
) -> FloatArray:
    """(n, P) seconds of a micro-batch for which activations travel beyond what its passes hide.

    Transformer Engine spreads copies over the layers of a pass (``AsyncDoubleBufferGroupOffloadHandler``).
    """
    travel = waiting_bytes / min(LINK_SHARE * host.link_bytes_per_s, host.memory_bytes_per_s)
    return np.asarray(np.maximum(travel - forward_s, 0.0) + np.maximum(travel - backward_s, 0.0))


def offload_s(
    host: HostShare,
    batch: CandidateBatch,
    workload: TrainingWorkload,
    owned: FloatArray,
    *,
    forward_s: FloatArray,
    backward_s: FloatArray,
    micro_batches: FloatArray,
) -> FloatArray:
    """(n, P) seconds that transfers and the update of ``owned`` (n, P) parameters add, nothing where none is.

    ``forward_s`` and ``backward_s`` (n, P): those of one micro-batch, beside which shards and gradients travel.
    """
    style, share = workload.framework.optimizer_offload, offload_share(batch, workload)
    if not share.any():
        return np.zeros_like(owned)
    link, width = LINK_SHARE * host.link_bytes_per_s, workload.framework.gradient_bytes
    if style is OptimizerOffload.STATES:  # DeepSpeed's gradients have the format of its weights
        width = _WEIGHT_BYTES
    memory = UPDATE_SHARE[style] * host.memory_bytes_per_s
    update, out, back = (nbytes * owned for nbytes in (UPDATE_BYTES / memory, width / link, _WEIGHT_BYTES / link))
    if style is OptimizerOffload.SHARE:  # one parameter travels while another is updated
        return np.asarray(share * np.maximum.reduce([update, out, back]))
    rounds = np.where(gradients_leave(batch, style), micro_batches, 1.0)[:, None]
    if style is OptimizerOffload.STATES:  # sums are fetched again for each further micro-batch
        exposed = np.maximum(out * (2.0 * rounds - 1.0) - rounds * backward_s, 0.0)
        read, write = (owned / rate for rate in (host.disk_read_bytes_per_s, host.disk_write_bytes_per_s))
        disk = on_disks(batch) * STATE_BYTES * (read + write)
        fetch = np.maximum(_WEIGHT_BYTES / link * owned, on_disks(batch) * _WEIGHT_BYTES * read)
        both = np.maximum(out * (2.0 * rounds - 1.0), out * (rounds - 1.0) + fetch * rounds)
        passes = np.maximum(fetch - forward_s, 0.0) * rounds + np.maximum(both - rounds * backward_s, 0.0)
        narrowing = _NARROWING_BYTES / memory * owned + on_disks(batch) * _WEIGHT_BYTES * write
        back = np.where(parameters_leave(batch), narrowing, back)
        exposed = np.where(parameters_leave(batch), passes, exposed)
        return np.asarray(share * (exposed + update + back) + disk)
    shard = _SHARD_BYTES / link * owned
    forward = np.maximum(shard - forward_s, 0.0)
    backward = np.maximum(np.maximum(shard, out) - backward_s, 0.0)
    update = update * (1.0 + CLIP_BYTES / UPDATE_BYTES)
    return np.asarray(share * (rounds * (forward + backward) + update))
