"""Costs of one training step that do not depend on which node plays which part.

Shapes: ``n`` candidates that share their pipeline and virtual pipeline sizes, ``C`` chunks (virtual stages)
in
the order the model runs through them (chunk ``c`` sits on pipeline rank ``c % pipeline``), ``P`` pipeline
ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.candidates import FloatArray


@dataclass(frozen=True, slots=True)
class CrossTraffic:
    """A collective inside a chunk whose group spans nodes, so that its pace depends on the placement.

    Each of the ``*_count`` (n, C) collectives moves ``message_bytes`` (n,) per GPU over the slowest link
    between
    consecutive nodes of its group, in time ``hop_s``, of which ``*_hidden_s`` (n,) overlaps with compute: the
    chunk takes ``count * max(0, hop_s - hidden_s)`` longer.  All zero where the group fits inside a node.
    """

    message_bytes: FloatArray
    forward_count: FloatArray
    backward_count: FloatArray
    forward_hidden_s: FloatArray
    backward_hidden_s: FloatArray


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Everything the placement and the pipeline need to know about ``n`` candidates.

    ``forward_s`` and ``backward_s`` (n, C): one micro-batch through one chunk on a healthy node, collectives
    inside a node included, traffic that crosses nodes left out.  ``compute_s``, ``tensor_s``,
    ``context_s`` and
    ``expert_s`` (n, C) are the parts of forward plus backward and add up to them.
    ``transfer_bytes`` (n,): what one GPU sends to its peer in the next chunk, per micro-batch.
    ``reduce_bytes`` and ``gather_bytes`` (n, P): gradients (and gathered parameters) that each GPU puts
    through
    its data parallel group (``data * context`` ranks) once per step, and ``expert_reduce_bytes``,
    ``expert_gather_bytes`` the same for experts over the expert data parallel group
    (``tensor * context * data / expert`` ranks); full buffer sizes, before the (n-1)/n of the ring.
    ``reduce_hidden_s`` and ``gather_hidden_s`` (n, P): how much of either hides behind compute.
    ``optimizer_s`` (n, P): the optimizer step itself.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    compute_s: FloatArray
    tensor_s: FloatArray
    context_s: FloatArray
    expert_s: FloatArray
    transfer_bytes: FloatArray
    context_traffic: CrossTraffic
    expert_traffic: CrossTraffic
    parameter_traffic: CrossTraffic
    """Parameters gathered layer by layer over the data parallel group when they are sharded (ZeRO-3)."""
    reduce_bytes: FloatArray
    gather_bytes: FloatArray
    expert_reduce_bytes: FloatArray
    expert_gather_bytes: FloatArray
    reduce_hidden_s: FloatArray
    gather_hidden_s: FloatArray
    optimizer_s: FloatArray
