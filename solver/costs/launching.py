"""Layers whose kernels end sooner than the host can launch the next ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import ATTENDING, Mixer
from cluster_models.training.framework_choices import CudaGraphs, ExpertBalance
from solver.candidates import BoolArray, FloatArray, IntArray
from solver.costs.calibration import Calibration
from solver.costs.compute import Processor, casts_scores
from solver.costs.local_sizes import LocalSizes
from solver.costs.seconds import Seconds

LAUNCHED: Final = {CudaGraphs.NONE: 1.0, CudaGraphs.PARTIAL: 0.5, CudaGraphs.FULL: 0.0}
"""Share of the host's time that stays: graphs of attention and pre-processing save half of it (estimated), a graph
of the whole iteration all."""
HOSTS_SEND_S: Final = 25e-6
"""Latency between nodes from which on threads of the host move what GPUs send (EFA 35 us, sockets 62 us), instead
of network cards by themselves (InfiniBand, RoCE, Slingshot: 10 us)."""
_RUN_AHEAD: Final = 2.5
_QUEUED: Final = 1024 / 40
"""Layers whose kernels the host has launched at most before it waits: the queue of a CUDA context holds 1,024
launches (NVIDIA developer forum, thread 68937: the 1,000th blocks), a layer's pass takes about 40."""
_STALLED: Final = 2
"""Domains of a tensor group from more than which on transfers held up the host in every measured pipeline, so that
nothing waited: those of nanotron with 32 tensor ranks took 2 to 10 times as long as their sizes make them."""
_LATENT_LAUNCHES: Final = 0.3
_SHARED_LAUNCHES: Final = 0.15
_GROUP_LAUNCHES: Final = 0.1
_MIXER_LAUNCHES: Final = 0.4
"""Shares of launches, estimated from the operations of Megatron-Core's modules: about 15, 8, 5 and 20 on 50.
Passes of DeepSeek-V3 and Kimi K2 that waited for their hosts lasted 7.7 to 7.9 ms, those of Qwen3-235B 5.0 to 5.5
(B300, 512 tokens, all-to-all dispatch)."""
_SCORE_LAUNCHES: Final = 0.18
"""Share of launches that softmax in pieces adds to a layer: 4 to the 18 of a forward pass, 4 to the 31 of a
backward pass at half the price (counted in Megatron-LM's ``transformer.py`` of 2022)."""
_PASSED: Final = 2.0
"""Micro-batches of a filling pipeline that its GPU has sent, or computes, when the host waits."""


def host_bound(
    layer: Seconds,
    collectives: Seconds,
    calibration: Calibration,
    *,
    tensor: FloatArray,
    crossing: BoolArray,
    share: FloatArray | float = 1.0,
) -> Seconds:
    """``layer`` of which each pass, ``collectives`` included, lasts as long as the host needs to launch it.

    Kernels queue up behind one another, so that the longer of the two sets the pace.  Backward launches about
    twice the kernels at half the price, from the autograd engine instead of Python.  Collectives of ``tensor`` (n,)
    ranks are launched as well; where pipeline transfers are ``crossing`` (n,) between nodes, the thread that moves
    them holds up each rank's launches by chance, and all ranks of the group wait for each of them.  A layer that
    is a mixer or an MLP alone launches a ``share`` of the kernels.
    """
    return layer.at_least(share * launching_s(calibration, tensor=tensor, crossing=crossing), collectives)


def beside_transfers(calibration: Calibration, latency_s: float) -> Calibration:
    """``calibration`` on a network of this latency: transfers hold up hosts that move them and wait for them."""
    if calibration.framework.blocking_transfers and latency_s >= HOSTS_SEND_S:
        return calibration
    return replace(calibration, transfer_stall_s=0.0)


def launching_s(calibration: Calibration, *, tensor: FloatArray, crossing: BoolArray) -> FloatArray:
    """(n,) seconds that the host takes for one pass of a dense layer; see ``host_bound``."""
    launching = calibration.layer_host_s + calibration.tensor_host_s * (tensor > 1)
    stalled = np.where(crossing, calibration.transfer_stall_s * tensor, 0.0)
    return np.asarray((launching + stalled) * LAUNCHED[calibration.framework.cuda_graphs])


def lagging(
    chip: Processor,
    architecture: Architecture,
    sizes: LocalSizes,
    *,
    in_flight: FloatArray,
    passes: FloatArray,
    micro_batches: IntArray,
    domain: int,
) -> FloatArray:
    """(n, P) gathered sequences that wait for a GPU behind its host, over those of the ``passes`` (n, P) in flight.

    PyTorch's allocator takes back what collectives gathered on a stream of their own only when the GPU has passed
    the point where the host let go of it.  Without a pipeline nothing holds the host up before the launch queue is
    full, ``_QUEUED`` layers on, in the backward pass if the forward pass has fewer, which gathers as much.  A step
    of a single one of ``micro_batches`` (n,) has reached its peak before that.

    In a pipeline each receipt of a gradient waits for the GPU.  Before the first one a rank launches as many
    micro-batches as it holds ``in_flight`` (n, P), while its GPU waits to send the second to a rank that waits for
    its own at each receipt: the others wait.  Also where a host that launches as fast as the GPU computes would
    find them free: ``_RUN_AHEAD`` times the forward products' share of the host's time was held in nanotron's
    sweeps, no more than all, and none where collectives leave the ``domain`` and keep the host in step.
    """
    parameters = architecture.attention_parameters() + architecture.dense_mlp_parameters()
    computed = 2.0 * parameters * sizes.shard_tokens / chip.matmul_flops
    pipelined = in_flight.shape[1] > 1
    room = _QUEUED / np.maximum(passes, 1.0)
    if not pipelined:
        return np.minimum(room, np.where(micro_batches > 1, 2.0, 1.0)[:, None])
    launching = launching_s(chip.calibration, tensor=sizes.tensor, crossing=np.ones_like(sizes.tensor, np.bool_))
    behind = np.minimum(_RUN_AHEAD * computed / np.maximum(launching, 1e-9), 1.0)
    behind = np.where(sizes.tensor > domain, 0.0, behind)[:, None]
    filling = 1.0 - _PASSED / np.maximum(in_flight, _PASSED)
    filling = np.where((sizes.tensor > _STALLED * domain)[:, None], 0.0, filling)
    return np.minimum(np.maximum(behind, filling), room)


@dataclass(frozen=True, slots=True)
class Shelter:
    """(n,) seconds of a sparse layer's pass that its dispatch and combination can use.

    ``beside_s``: they run beside the compute of another micro-batch; ``idle_s``: the GPU waits for its host.
    """

    beside_s: FloatArray
    idle_s: FloatArray


def score_launches(
    chip: Processor, architecture: Architecture, sizes: LocalSizes, mixer: Mixer
) -> FloatArray | float:
    """(n,) kernels that a pass launches, over a layer's, to make softmax of scores that no fused kernel takes."""
    if mixer not in ATTENDING or chip.calibration.framework.fused_attention:
        return 0.0
    return np.where(casts_scores(chip, sizes.micro_batch * architecture.heads / sizes.tensor), _SCORE_LAUNCHES, 0.0)


def sparse_launches(architecture: Architecture, mixer: Mixer = Mixer.FULL) -> float:
    """Kernels that a pass of a sparse layer launches, over those of one that measured hosts launched.

    These had grouped queries and no shared expert.  Latent attention projects and normalises queries and keys
    twice, splits, rotates and joins parts of them and gathers their latents (Megatron-Core's
    ``multi_latent_attention.py``); a shared expert is an MLP of its own (``shared_experts.py``), and a router of
    groups ranks these first (``moe_utils.py``).
    """
    experts = architecture.experts
    more = _LATENT_LAUNCHES if architecture.latent_attention is not None and mixer in ATTENDING else 0.0
    more -= _MIXER_LAUNCHES if mixer is Mixer.NONE else 0.0
    if experts is not None:
        more += _SHARED_LAUNCHES if experts.shared_hidden else 0.0
        more += _GROUP_LAUNCHES if experts.router_groups > 1 else 0.0
    return 1.0 + more


def sparse_host_bound(
    layer: Seconds,
    collectives: Seconds,
    calibration: Calibration,
    *,
    overlapped: BoolArray,
    experts: FloatArray,
    launches: FloatArray | float = 1.0,
) -> tuple[Seconds, Shelter]:
    """A sparse ``layer`` with ``experts`` (n,) on the GPU, no pass shorter than its host needs; what that hides.

    Where experts take however many tokens come, the host needs to know how many (Megatron-Core's dispatchers copy
    counts to it once a layer, DeepEP's host waits for them) and cannot launch ahead of the GPU; with a capacity for
    each expert all sizes are known beforehand.  Where ``overlapped`` (n,) layers of two micro-batches are launched
    in pieces, in turn and on several streams, which keeps the host busy for longer still.  ``launches`` as
    ``sparse_launches``.
    """
    framework = calibration.framework
    counted = 0.0 if framework.expert_balance is ExpertBalance.CAPACITY else calibration.sparse_host_s
    launching = launches * np.where(overlapped, calibration.overlap_host_s, counted)
    launching = launching + calibration.expert_host_s * experts
    bound = layer.at_least(launching * LAUNCHED[framework.cuda_graphs], collectives)
    computed = (layer.forward + layer.backward) / 2.0
    beside = np.where(overlapped, calibration.dispatch_overlap * computed, 0.0)
    return bound, Shelter(beside, (bound.forward + bound.backward) / 2.0 - computed)
