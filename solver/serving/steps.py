"""Seconds of one decode step and of one prefill, by part.  Shapes (n,), an entry a case; see docs/serving.md.

Letters: t tokens of an attention rank, T tokens of the whole worker, c context of a sequence in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.serving.adapters import ELEMENT_BYTES
from solver.serving.loads import FloatArray, Loads
from solver.serving.power import under_cap
from solver.serving.rates import Rates

ROOFLINE: Final = 3.0
"""Exponent of the norm that joins memory and compute time: between their maximum and their sum, as overlap is never
perfect (measured products near the ridge take up to a quarter more than the larger of the two)."""


ADAPTER_LINEAR_S: Final = 9e-6
"""Launches of a linear layer's adapters in a step: Punica (arXiv 2310.18547, abstract) adds 2 ms a token
to a model of 224 linear layers (7 billion parameters) on an A100; estimated for other GPUs and engines."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Where the seconds of a step go; ``overhead_s``: launches, scheduling and host work."""

    dense_s: FloatArray
    expert_s: FloatArray
    attention_s: FloatArray
    collective_s: FloatArray
    overhead_s: FloatArray

    @property
    def total_s(self) -> FloatArray:
        """The whole step."""
        return self.dense_s + self.expert_s + self.attention_s + self.collective_s + self.overhead_s


def decode_step(
    loads: Loads,
    rates: Rates,
    sequences: FloatArray,
    context: FloatArray,
    drafts: FloatArray,
    windowed: FloatArray | None = None,
) -> StepTime:
    """One decode step of ``sequences`` of a worker at mean ``context``; each advances ``1 + drafts`` positions.

    ``windowed`` is the mean context in layers with a window (default: of sequences that all have ``context``).
    In a pipeline each micro-batch of ``sequences`` / pipeline passes the stages one after the other.
    """
    batch = np.maximum(sequences / loads.pipeline, 1.0)
    rank = np.maximum(batch / loads.attention_data, 1.0)
    positions = 1.0 + drafts
    windowed = np.minimum(context, loads.window) if windowed is None else windowed
    cache = rank * (context * loads.cache_full_bytes + windowed * loads.cache_window_bytes)
    flops = rank * positions * (context * loads.decode_attention_flops + windowed * loads.decode_window_flops)
    attention = _roofline(
        cache / (loads.memory_bytes_per_s * rates.cache_share),
        flops / (loads.attention_peak * rates.cache_share),
    )
    one = _step(
        loads,
        rates,
        rank * positions,
        batch * positions,
        attention,
        sequences / loads.attention_data,
        rates.layer_s,
    )
    step = _times(one, rates.decode_factor, loads.adapter_linears * ADAPTER_LINEAR_S)
    return under_cap(step, loads, lambda own, other: decode_step(own, other, sequences, context, drafts, windowed))


def prefill_step(
    loads: Loads,
    rates: Rates,
    tokens: FloatArray,
    ranks: FloatArray,
    chunks: FloatArray,
    prompts: FloatArray,
    context: FloatArray | None = None,
    attention: FloatArray | float = 1.0,
) -> StepTime:
    """Prefill of ``prompts`` side by side on each of ``ranks`` attention ranks, in ``chunks`` steps.

    Each has ``tokens`` to compute at the end of ``context`` tokens (default: as many), the others being cached.
    Prompts of several lengths have ``attention`` times the FLOPs of attention of the mean prompt.
    """
    whole = tokens if context is None else context
    flops = prompts * (prompt_flops(loads, whole) - prompt_flops(loads, whole - tokens)) * attention
    attention = flops / (loads.attention_peak * rates.attention_share)
    rank = prompts * tokens / chunks
    one = _step(loads, rates, rank, rank * ranks, attention / chunks, prompts, rates.prefill_layer_s)
    step = _times(one, chunks * rates.prefill_factor, chunks * loads.adapter_linears * ADAPTER_LINEAR_S)
    return under_cap(
        step,
        loads,
        lambda own, other: prefill_step(own, other, tokens, ranks, chunks, prompts, context, attention),
    )


def prompt_flops(loads: Loads, tokens: FloatArray) -> FloatArray:
    """FLOPs of attention of a prompt: each token meets those before it, in windowed layers those in the window."""
    windowed = np.minimum(tokens, loads.window)
    return np.asarray(
        tokens * tokens / 2.0 * loads.prefill_attention_flops
        + (windowed * tokens - windowed * windowed / 2.0) * loads.prefill_window_flops
    )


def _times(step: StepTime, factor: FloatArray, launches_s: FloatArray) -> StepTime:
    """The step ``factor`` times, and ``launches_s`` that factors were not fitted to."""
    scaled = StepTime(*(getattr(step, name) * factor for name in StepTime.__slots__))
    return replace(scaled, overhead_s=scaled.overhead_s + launches_s)


def _step(
    loads: Loads,
    rates: Rates,
    rank: FloatArray,
    worker: FloatArray,
    attention_s: FloatArray,
    sequences: FloatArray,
    layer_s: FloatArray,
) -> StepTime:
    adapter_bytes, adapter_flops = adapter_work(loads, np.minimum(sequences, rank))
    dense = _roofline(
        (loads.dense_bytes + adapter_bytes) / (loads.memory_bytes_per_s * rates.memory_share),
        rank * (loads.dense_flops_per_token + adapter_flops) / (loads.dense_peak * rates.compute_share),
    )
    # A token meets `active` of `experts`: of the experts, none of T tokens meets a share (1 - active/experts)^T.
    untouched = (1.0 - np.minimum(loads.active / loads.experts, 1.0 - 1e-9)) ** worker
    excess = busiest_load(
        np.where(np.isnan(loads.imbalance), rates.imbalance, loads.imbalance), loads.expert_groups
    )
    experts = np.where(
        loads.sparse_layers > 0,
        excess
        * _roofline(
            loads.expert_bytes * (1.0 - untouched) / (loads.memory_bytes_per_s * rates.expert_memory_share),
            worker * loads.active * loads.expert_flops_per_token / (loads.expert_peak * rates.expert_compute_share),
        ),
        0.0,
    )
    overhead = (
        loads.layers * layer_s
        + loads.sparse_layers * rates.sparse_layer_s
        + rates.step_s
        + rates.sequence_s * sequences
    )
    return StepTime(dense, experts, attention_s, _collectives(loads, rates, rank), overhead)


def adapter_work(loads: Loads, sequences: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bytes of the adapters that a step of so many sequences reads, and FLOPs of a token with its own.

    Each of n adapters is named by as many requests: of b sequences n (1 - (1 - 1/n)^b) differ.
    """
    number = np.maximum(loads.adapters, 1.0)
    differing = number * (1.0 - (1.0 - 1.0 / np.maximum(number, 1.0 + 1e-9)) ** np.maximum(sequences, 1.0))
    read = np.minimum(np.where(number > 1.0, differing, 1.0), loads.adapters_held)
    return read * loads.adapter_bytes, 2.0 * loads.adapter_bytes / ELEMENT_BYTES


def busiest_load(imbalance: FloatArray, groups: FloatArray) -> FloatArray:
    """Load of the busiest of ``groups`` of expert ranks over their mean."""
    return np.asarray(1.0 + imbalance * (1.0 - 1.0 / groups))


def _collectives(loads: Loads, rates: Rates, rank: FloatArray) -> FloatArray:
    """Seconds of the collectives of a step of ``rank`` tokens on each attention rank.

    All-reduce: reduced among the g members of a domain, then each of these 1/g of the message among the N domains,
    and gathered again: 2(g-1)/g of the message inside and 2(N-1)/N of 1/g of it between domains (Patarasuk & Yuan
    2009 for each level).  Dispatch and combine of experts: a token goes to all ranks that slice its ``active``
    experts, and crosses once to each other domain that has one of them (DeepSeek-V3, arXiv 2412.19437, section
    3.2.2): as counts of the router say, else as with experts that are selected alike.  Latency grows with log2 of
    the members.  Stages pass their tokens on over the links that leave a domain where the worker does.
    """
    inside = loads.domain_bytes_per_s * rates.link_share
    message = rank * loads.hidden_bytes
    tensor, members = np.maximum(loads.tensor, 1.0), np.maximum(loads.members, 1.0)
    near, domains = np.minimum(tensor, loads.domain), np.ceil(tensor / loads.domain)
    reduce = (
        np.log2(np.maximum(tensor, 2.0)) * rates.collective_s
        + 2.0 * (near - 1.0) / near * message / inside
        + (domains > 1) * loads.cross_latency_s
        + 2.0 * (domains - 1.0) / domains * message / near / loads.cross_bytes_per_s
    )
    near, domains = np.minimum(members, loads.domain), np.ceil(members / loads.domain)
    sent = message / loads.tensor
    copies = np.minimum(loads.active * members / loads.expert_groups, members)
    exchange = (
        np.log2(np.maximum(members, 2.0)) * rates.collective_s
        + copies * (near - 1.0) / members * sent / inside
        + (domains > 1) * loads.cross_latency_s
        + loads.crossing * sent / loads.cross_bytes_per_s
    )
    between = np.where(loads.members * loads.pipeline > loads.domain, loads.cross_bytes_per_s, inside)
    passes = (loads.pipeline - 1.0) * (rates.collective_s + message / between)
    return np.asarray(loads.reduced * reduce + loads.exchanged * exchange + passes)


def _roofline(memory_s: FloatArray, compute_s: FloatArray) -> FloatArray:
    """Seconds of work bound by memory or by compute, joined smoothly."""
    largest = np.maximum(np.maximum(memory_s, compute_s), 1e-30)
    return np.asarray(
        largest * ((memory_s / largest) ** ROOFLINE + (compute_s / largest) ** ROOFLINE) ** (1.0 / ROOFLINE)
    )
