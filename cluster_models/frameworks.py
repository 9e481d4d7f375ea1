"""Generations of training frameworks: what each does that decides how long a step takes and what it holds.

The same configuration runs 20 to 60 % faster or slower from one release to another, so a generation is a thing of
its own beside the GPU kind.  Here stand the facts of each (read in its documentation or code, with the source);
what is fitted on measured steps stands in ``solver/costs/data``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from cluster_models.errors import InvalidWorkload


class ExpertDispatch(StrEnum):
    """How tokens travel to the ranks of their experts and back."""

    ALL_TO_ALL = "all_to_all"
    """One message per token and expert (Megatron-Core's default dispatcher)."""
    DEEPEP = "deepep"
    """A token crosses to a node once for all its experts there (DeepEP's kernels)."""
    HYBRIDEP = "hybridep"
    """DeepEP's successor for NVLink domains larger than a node."""


class AttentionKernels(StrEnum):
    """Whose fused attention runs."""

    VENDOR = "vendor"
    """Written for the GPU at hand: cuDNN through Transformer Engine or XLA, FlashAttention-3."""
    FLASH_2 = "flash_2"
    """FlashAttention-2, PyTorch's own included, written for Ampere."""
    FLASH_TRITON = "flash_triton"
    """FlashAttention-1 written in Triton for Ampere."""


class SelectiveRecompute(StrEnum):
    """What selective recomputation runs again in backward."""

    ATTENTION_CORE = "attention_core"
    """Scores, softmax and the product with the values (Megatron; arXiv 2205.05198, section 5)."""
    ALTERNATE_PRODUCTS = "alternate_products"
    """All but attention and, in 16 bits, every second matrix product (torchtitan's ``selective`` by ``op``)."""


class CudaGraphs(StrEnum):
    """What of a step is captured and launched as a whole, free of launch overhead on the host."""

    NONE = "none"
    PARTIAL = "partial"
    """Attention, router and pre-processing of each layer (Transformer Engine's graphs)."""
    FULL = "full"
    """The whole iteration."""


@dataclass(frozen=True, slots=True)
class Framework:
    """One generation.  ``released`` is the month (``2024-07``) from which it was current.

    ``fused_attention``: FlashAttention-like kernels, ``attention_kernels``: whose they are.  ``sequence_parallel``:
    tensor ranks also split the sequence outside their blocks.  ``gradient_bytes``: width of accumulated and reduced
    gradients; ``logit_bytes``: bytes that output and loss hold per token and vocabulary entry.  ``step_bytes``:
    what the optimizer's step takes per owned parameter while it runs (FP32 copies of gradients, temporaries);
    ``bucket_bytes``: buffers through which gradients are reduced and weights gathered.  ``sharded_master``: with
    sharded parameters the FP32 shard is the weight itself, no 16-bit shard beside it, and pipelined the gathered
    weights stay until the last micro-batch, as do whole gradients (PyTorch FSDP).  ``dropout``: its scripts
    train models with learned positions with dropout, whose masks and outputs are kept.
    ``keeps_stage_outputs``: a pipeline rank holds what it sent on until the backward pass (Megatron frees it).
    ``overlap_gradients``, ``overlap_parameters``: gradient reduction runs beside the backward pass, parameter
    gathering beside the forward pass.
    ``stops_recompute``: full recomputation ends before a layer's last matrix product, whose output backward does
    not need.  ``fused_kernels``: memory-bound work between matrix products runs as fused kernels (Transformer
    Engine, ``torch.compile``, XLA) instead of one operation after the other.
    ``overlap_tensor``: tensor parallel collectives run in chunks beside the matrix products that need or make their
    data (Transformer Engine's user buffers, ``--tp-comm-overlap``), forward as well.
    ``fused_accumulation``: the product for a weight's gradient adds into the gradient buffer itself, instead of one
    more kernel after it (``--gradient-accumulation-fusion``).
    ``fused_loss``: one kernel for the cross-entropy and its gradient, which overwrites the logits.
    ``blocking_transfers``: pipeline ranks wait for their sends, which delay both neighbours.
    ``defer_head_gradient``: pipelined, the output layer's weight gradient waits for the flush, when its rank idles.
    ``expert_overlap``: dispatch and combine of one micro-batch run beside another one's compute.
    ``expert_tensor``: experts have a tensor parallel size of their own (Megatron-Core's
    ``--expert-tensor-parallel-size``).
    ``measured_as``: the generation that runs the same kernels and was measured, where this one was not; else empty.
    """

    name: str
    title: str
    released: str
    fused_attention: bool
    attention_kernels: AttentionKernels
    sequence_parallel: bool
    gradient_bytes: float
    logit_bytes: float
    step_bytes: float
    bucket_bytes: float
    sharded_master: bool
    dropout: bool
    keeps_stage_outputs: bool
    overlap_gradients: bool
    overlap_parameters: bool
    fused_kernels: bool
    overlap_tensor: bool
    fused_accumulation: bool
    fused_loss: bool
    blocking_transfers: bool
    defer_head_gradient: bool
    expert_dispatch: ExpertDispatch
    expert_overlap: bool
    expert_tensor: bool
    cuda_graphs: CudaGraphs
    stops_recompute: bool
    selective_recompute: SelectiveRecompute
    measured_as: str
    source: str

    @property
    def calibrated_as(self) -> str:
        """The generation whose fitted parameters and errors are taken for this one."""
        return self.measured_as or self.name


@cache
def frameworks() -> MappingProxyType[str, Framework]:
    """Every shipped generation by name, oldest first."""
    text = resources.files("cluster_models").joinpath("data", "frameworks.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    found = (_framework(name, tables["defaults"] | entry) for name, entry in tables["frameworks"].items())
    return MappingProxyType(
        {each.name: each for each in sorted(found, key=lambda each: (each.released, each.name))}
    )


def framework(name: str) -> Framework:
    """The generation called ``name``; raises ``InvalidWorkload`` naming those there are."""
    found = frameworks().get(name)
    if found is None:
        raise InvalidWorkload(
            "workload.framework", name, "no such framework generation", f"use one of {', '.join(frameworks())}"
        )
    return found


def _framework(name: str, entry: dict[str, Any]) -> Framework:
    values = entry | {
        "name": name,
        "expert_dispatch": ExpertDispatch(entry["expert_dispatch"]),
        "cuda_graphs": CudaGraphs(entry["cuda_graphs"]),
        "attention_kernels": AttentionKernels(entry["attention_kernels"]),
        "selective_recompute": SelectiveRecompute(entry["selective_recompute"]),
    }
    return Framework(**{column.name: values[column.name] for column in fields(Framework)})


DEFAULT_FRAMEWORK: Final = framework("megatron-core-0.12")
"""What a workload gets that names none."""
