"""Traffic of one layer: seconds inside a domain, or what crosses nodes where the group is wider.

Letters: T tokens of a context rank, h hidden width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Collective
from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import ATTENDING, Mixer
from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import FloatArray, IntArray
from solver.costs.calibration import Calibration
from solver.costs.collectives import domain_collective_s, domain_send_s
from solver.costs.compute import Extent
from solver.costs.layer_costs import core_widths, local_kv_heads
from solver.costs.local_sizes import LocalSizes
from solver.costs.seconds import Seconds


@dataclass(frozen=True, slots=True)
class Window:
    """The most that a GPU has under way at once over links of ``latency_s`` or more, in bytes.

    Such a link carries no more than this in each of its latencies.  ``hides``: compute hides what that adds like
    the transfer itself; else nothing hides a transfer that the window limits.
    """

    nbytes: float = math.inf
    latency_s: float = 0.0
    hides: bool = True

    def limited_s(
        self, hop_s: FloatArray, message_bytes: Extent, latency_s: Extent, hidden_s: Extent
    ) -> FloatArray:
        """Seconds, to be compared with the ``hidden_s``, of messages that take ``hop_s`` without the window."""
        if not math.isfinite(self.nbytes):
            return hop_s
        within = latency_s * (1.0 + message_bytes / self.nbytes)
        limited = (within > hop_s) & (np.asarray(latency_s) >= self.latency_s)
        return np.where(limited, within if self.hides else within + hidden_s, hop_s)


NO_WINDOW: Final = Window()


@dataclass(frozen=True, slots=True)
class CrossTraffic:
    """A collective inside a chunk whose group spans nodes, so that its pace depends on the placement.

    Each of the ``*_count`` (n, C) collectives moves ``message_bytes`` (n,) per GPU over the slowest link between
    consecutive nodes of its group, in time ``hop_s``, of which ``*_hidden_s`` (n,) overlaps with compute: the
    chunk takes ``count * max(0, hop_s - hidden_s)`` longer.  All zero where the group fits inside a node.
    ``weight_count``: those of the forward pass that run again for gradients of weights where these come apart.
    """

    message_bytes: FloatArray
    forward_count: FloatArray
    backward_count: FloatArray
    weight_count: FloatArray
    forward_hidden_s: FloatArray
    backward_hidden_s: FloatArray
    window: Window = NO_WINDOW

    def of_step(self, passes: float, *, backward: bool) -> CrossTraffic:
        """With ``passes`` forward passes, and one ``backward`` or none, as in ``Seconds``."""
        counts = self.forward_count * passes, self.backward_count * backward
        return replace(self, forward_count=counts[0], backward_count=counts[1])

    def by_event(self, order: PipelineSchedule) -> tuple[tuple[FloatArray, FloatArray], ...]:
        """Counts (n, C) and hidden seconds (n,) of each kind of event under a schedule (``solver.orders``)."""
        both = (self.forward_count, self.forward_hidden_s), (self.backward_count, self.backward_hidden_s)
        return (*both, (self.weight_count, self.forward_hidden_s)) if order.splits_backward else both


@dataclass(frozen=True, slots=True)
class LayerTraffic:
    """One layer's collective: ``inside`` seconds, or ``count`` messages a layer that cross nodes.

    All (n,); ``inside`` is 0 where the group spans nodes and the counts are 0 where it does not.
    """

    inside: Seconds
    message_bytes: FloatArray
    forward_count: FloatArray
    backward_count: FloatArray
    forward_hidden_s: FloatArray
    backward_hidden_s: FloatArray
    window: Window = NO_WINDOW

    def in_messages_of(self, nbytes: FloatArray) -> LayerTraffic:
        """The same bytes in messages of ``nbytes`` (n,), no smaller ones than its own."""
        share = self.message_bytes / np.maximum(nbytes, 1.0)
        if np.all((share == 1.0) | (self.message_bytes == 0.0)):
            return self
        return replace(
            self,
            message_bytes=nbytes,
            forward_count=self.forward_count * share,
            backward_count=self.backward_count * share,
        )

    def cross(self, layers: FloatArray, again: FloatArray | float = 0.0) -> CrossTraffic:
        """Counts of chunks with ``layers``, (C,) or (n, C), and ``again`` forward passes (n, C) in backward."""
        forward = self.forward_count[:, None]
        return CrossTraffic(
            message_bytes=self.message_bytes,
            forward_count=forward * layers,
            backward_count=self.backward_count[:, None] * layers + forward * again,
            weight_count=forward * (again + 0.0 * layers),
            forward_hidden_s=self.forward_hidden_s,
            backward_hidden_s=self.backward_hidden_s,
            window=self.window,
        )


def joined_traffic(kinds: Sequence[LayerTraffic], layers: IntArray, again: FloatArray) -> CrossTraffic:
    """Traffic between nodes in chunks with ``layers``, (C, K) or (n, C, K), of each kind.

    ``again`` (n, C, K): forward passes that run once more in backward.  Messages of a kind with smaller ones count
    by their bytes.  A message hides under the mean over the layers that send any.
    """
    held = layers.reshape(-1, layers.shape[-1]).sum(axis=0).tolist()
    sending = [count if kind.forward_count.any() else 0 for kind, count in zip(kinds, held, strict=True)]
    largest = np.maximum.reduce([kind.message_bytes for kind in kinds])
    crossing = [
        kind.in_messages_of(largest).cross(layers[..., number].astype(np.float64), again[..., number])
        for number, kind in enumerate(kinds)
    ]

    def mean(each: Sequence[FloatArray]) -> FloatArray:
        total = sum(count * part for count, part in zip(sending, each, strict=True))
        return np.asarray(total / max(sum(sending), 1))

    return CrossTraffic(
        message_bytes=largest,
        forward_count=np.asarray(sum(part.forward_count for part in crossing)),
        backward_count=np.asarray(sum(part.backward_count for part in crossing)),
        weight_count=np.asarray(sum(part.weight_count for part in crossing)),
        forward_hidden_s=mean([part.forward_hidden_s for part in crossing]),
        backward_hidden_s=mean([part.backward_hidden_s for part in crossing]),
        window=min((part.window for part in crossing), key=lambda window: window.nbytes),
    )


def both(first: LayerTraffic, second: LayerTraffic) -> LayerTraffic:
    """Two collectives of one layer, one after the other; what crosses nodes in the larger messages of the two."""
    largest = np.maximum(first.message_bytes, second.message_bytes)
    one, other = first.in_messages_of(largest), second.in_messages_of(largest)
    counts = one.forward_count + other.forward_count, one.backward_count + other.backward_count
    hidden = [(a.forward_count * a.forward_hidden_s, a.backward_count * a.backward_hidden_s) for a in (one, other)]
    return LayerTraffic(
        inside=first.inside + second.inside,
        message_bytes=largest,
        forward_count=counts[0],
        backward_count=counts[1],
        forward_hidden_s=(hidden[0][0] + hidden[1][0]) / np.maximum(counts[0], 1e-9),
        backward_hidden_s=(hidden[0][1] + hidden[1][1]) / np.maximum(counts[1], 1e-9),
        window=min(first.window, second.window, key=lambda window: window.nbytes),
    )


def no_traffic(sizes: LocalSizes) -> LayerTraffic:
    """Traffic of a layer without such a collective: none."""
    nothing = np.zeros_like(sizes.tokens)
    inside = Seconds(nothing, nothing, sizes.no_weights)
    return LayerTraffic(inside, nothing, nothing, nothing, nothing, nothing)


def tensor_traffic(
    gpu: GpuKind, calibration: Calibration, architecture: Architecture, sizes: LocalSizes
) -> Seconds:
    """Seconds of the collectives around one attention or MLP block split over tensor ranks.

    Sequence parallelism: gather before and scatter after the block, the mirror image backward, and the block's
    input gathered once more for the weight gradient unless it was kept (arXiv 2205.05198, section 4.2.2).  Gathers
    carry the format of the matrix products, scatters 16 bits.  Megatron runs that last gather and the backward
    scatter beside matrix products, with user buffers all five: ``tensor_overlap`` of them is hidden.  Without
    sequence parallelism an all-reduce follows the block, and one its input's gradient, beside which Megatron of
    2022 and later computes the weight's (arXiv 1909.08053, section 3).  PyTorch's DTensor hides
    nothing unless it runs asynchronously.  Where weights are frozen no input is gathered for their gradients, and
    only chunks run beside products.

    Every collective also waits until the last rank starts it: ``collective_skew_s`` for each doubling of the group,
    as the expected maximum of independent delays grows about with the logarithm of their number.
    """
    width = architecture.hidden * sizes.tokens
    skew = calibration.collective_skew_s * np.log2(sizes.tensor)
    exposed = 1.0 - calibration.tensor_overlap
    frozen = sizes.adapters is not None
    beside = calibration.framework.overlap_tensor_backward and not frozen
    behind = exposed if sizes.chunked_collectives or beside else 1.0
    if not calibration.framework.sequence_parallel:
        reduce = domain_collective_s(gpu, Collective.ALL_REDUCE, sizes.tensor, sizes.element_bytes * width)
        reduce = reduce / calibration.domain_share + skew
        return Seconds(reduce, behind * reduce, sizes.no_weights)
    gather = domain_collective_s(gpu, Collective.ALL_GATHER, sizes.tensor, sizes.gathered_bytes * width)
    scatter = domain_collective_s(gpu, Collective.REDUCE_SCATTER, sizes.tensor, sizes.element_bytes * width)
    gather, scatter = gather / calibration.domain_share + skew, scatter / calibration.domain_share + skew
    at_once = exposed if sizes.chunked_collectives else 1.0
    again = 0.0 if calibration.framework.keeps_gathered_inputs or frozen else gather
    weight = None if sizes.no_weights is None else sizes.no_weights + behind * again
    return Seconds(at_once * (gather + scatter), at_once * gather + behind * (again + scatter), weight)


def context_traffic(
    gpu: GpuKind, architecture: Architecture, sizes: LocalSizes, mixer: Mixer, *, core: Seconds, domain: int
) -> LayerTraffic:
    """Exchange of context ranks in a layer of ``mixer``, whose attention core takes ``core``.

    Groups of more than ``domain`` GPUs, their tensor ranks included, span nodes.
    """
    if mixer is Mixer.PARALLEL:
        exchange = _exchange(gpu, architecture, sizes, core=core, domain=domain)
        return both(exchange, _swap(gpu, architecture, sizes, mixer, domain=domain))
    if mixer in ATTENDING:
        return _exchange(gpu, architecture.of_mixer(mixer), sizes, core=core, domain=domain)
    return _swap(gpu, architecture, sizes, mixer, domain=domain)


def _swap(
    gpu: GpuKind, architecture: Architecture, sizes: LocalSizes, mixer: Mixer, *, domain: int
) -> LayerTraffic:
    """Sequence for heads before linear attention or a state space and back after it, an all-to-all each way.

    The projected input travels there, the output back (Megatron-Core's ``MambaContextParallel`` and
    ``a2a_cp_to_hp``); nothing hides it.  A convolution needs a few tokens of its neighbour, which is not counted.
    """
    width = 0
    if mixer is Mixer.LINEAR and (linear := architecture.linear_attention) is not None:
        width = linear.in_width + linear.value_width
    elif mixer in (Mixer.STATE_SPACE, Mixer.PARALLEL) and (space := architecture.state_space) is not None:
        width = space.in_width + space.inner
    if not width:
        return no_traffic(sizes)
    nbytes = sizes.element_bytes * width * sizes.shard_tokens
    return _all_to_all(gpu, sizes, nbytes, sizes.context, messages=1, domain=domain)


def _all_to_all(
    gpu: GpuKind, sizes: LocalSizes, nbytes: FloatArray, members: FloatArray, *, messages: int, domain: int
) -> LayerTraffic:
    """Exchange of ``nbytes`` (n,) of a rank among ``members`` (n,) context ranks in each pass, which nothing hides.

    It takes several ``messages``, one after the other.
    """
    together = sizes.tensor * members <= domain
    spans = ~together & (members > 1)
    nodes = np.where(spans, np.minimum(np.ceil(sizes.tensor * members / domain), members), 1.0)
    each = nbytes / messages
    inside = messages * domain_collective_s(gpu, Collective.ALL_TO_ALL, np.where(together, members, 1.0), each)
    nothing, once = np.zeros_like(sizes.tokens), np.where(spans, float(messages), 0.0)
    return LayerTraffic(
        inside=Seconds(inside, inside, sizes.no_weights),
        message_bytes=np.where(spans, each * (1.0 - 1.0 / nodes), 0.0),
        forward_count=once,
        backward_count=once,
        forward_hidden_s=nothing,
        backward_hidden_s=nothing,
    )


def _exchange(
    gpu: GpuKind, architecture: Architecture, sizes: LocalSizes, *, core: Seconds, domain: int
) -> LayerTraffic:
    """Exchange of the context ranks of attention: a ring, a gather, an all-to-all of heads, or that and a ring.

    Queries, keys, values and output travel for heads, their gradients back (DeepSpeed-Ulysses, arXiv 2309.14509,
    section 3; Transformer Engine's ``AttnFuncWithCPAndQKVOA2A``).
    """
    ring = _ring(gpu, architecture, sizes, core=core, domain=domain)
    if not np.any(sizes.head_ranks > 1):
        return ring
    key, value = core_widths(architecture)
    heads = architecture.heads / sizes.tensor + _exchanged_heads(architecture, sizes)
    nbytes = sizes.element_bytes * heads * (key + value) * sizes.tokens
    swap = _all_to_all(gpu, sizes, nbytes, np.asarray(sizes.head_ranks), messages=4, domain=domain)
    return both(swap, ring)


def _exchanged_heads(architecture: Architecture, sizes: LocalSizes) -> FloatArray:
    """(n,) heads of keys and values of one tensor rank; latent attention projects them up for every head."""
    if architecture.latent_attention is not None:
        return np.asarray(architecture.heads / sizes.tensor)
    return local_kv_heads(architecture, sizes)


def _ring(
    gpu: GpuKind, architecture: Architecture, sizes: LocalSizes, *, core: Seconds, domain: int
) -> LayerTraffic:
    """Ring exchange of keys and values, each step beside the attention on the block just received.

    ``core`` is the attention core's time.  A step less than there are ranks forward, no more of them than groups
    that exchange heads; backward also the gradients of keys and values travel, twice the bytes (Ring Attention,
    arXiv 2310.01889, section 3; Megatron-Core's ``p2p``).  Where an indexer picks from compressed keys and values,
    these travel, with the indexer's keys.  Where keys and values are gathered instead, nothing hides that, a node
    sends what its ranks have over all of their links, and gradients are scattered (Llama 3, arXiv 2407.21783,
    section 3.3.2; Transformer Engine's ``AttnFuncWithCPAndKVAllGather``).
    """
    key, value = core_widths(architecture)
    if architecture.latent_attention is not None and (sparse := architecture.sparse_attention) is not None:
        block = sizes.element_bytes * (key + sparse.head_size) * sizes.tokens
    else:
        block = sizes.element_bytes * _exchanged_heads(architecture, sizes) * (key + value) * sizes.tokens
    ranks = sizes.context / sizes.head_ranks
    steps = ranks - 1.0
    hidden = core * (1.0 / ranks)
    together = sizes.tensor * sizes.context <= domain
    inside = np.where(together, sizes.context, 1.0)
    forward = steps * np.maximum(domain_send_s(gpu, inside, block) - hidden.forward, 0.0)
    backward = steps * np.maximum(domain_send_s(gpu, inside, 2.0 * block) - hidden.backward, 0.0)
    spans = ~together & (ranks > 1)
    ring = LayerTraffic(
        inside=Seconds(forward, backward, sizes.no_weights),
        message_bytes=np.where(spans, block, 0.0),
        forward_count=np.where(spans, steps, 0.0),
        backward_count=np.where(spans, 2.0 * steps, 0.0),
        forward_hidden_s=np.where(spans, hidden.forward, 0.0),
        backward_hidden_s=np.where(spans, hidden.backward / 2.0, 0.0),
    )
    return _or_gathered(gpu, sizes, ring, block, inside, domain=domain) if np.any(sizes.gathers) else ring


def _or_gathered(
    gpu: GpuKind, sizes: LocalSizes, ring: LayerTraffic, block: FloatArray, inside: FloatArray, *, domain: int
) -> LayerTraffic:
    """``ring``, and where keys and values are gathered that instead: two gathers, backward two scatters as well.

    Between nodes a rank sends the ``block`` of each of the others' places on its own link.
    """
    gathers, half = np.asarray(sizes.gathers), block / 2.0
    gather = 2.0 * domain_collective_s(gpu, Collective.ALL_GATHER, inside, inside * half)
    scatter = 2.0 * domain_collective_s(gpu, Collective.REDUCE_SCATTER, inside, inside * half)
    spans = ring.message_bytes > 0
    hops = np.where(spans, np.minimum(np.ceil(sizes.tensor * sizes.context / domain), sizes.context) - 1.0, 0.0)
    return LayerTraffic(
        inside=Seconds(
            np.where(gathers, gather, ring.inside.forward),
            np.where(gathers, gather + scatter, ring.inside.backward),
            ring.inside.weight,
        ),
        message_bytes=np.where(gathers & spans, half, ring.message_bytes),
        forward_count=np.where(gathers, 2.0 * hops, ring.forward_count),
        backward_count=np.where(gathers, 4.0 * hops, ring.backward_count),
        forward_hidden_s=np.where(gathers, 0.0, ring.forward_hidden_s),
        backward_hidden_s=np.where(gathers, 0.0, ring.backward_hidden_s),
    )
