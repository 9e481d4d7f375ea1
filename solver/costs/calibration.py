"""The few numbers of the cost model that are fitted or estimated rather than taken from a data sheet."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

from cluster_models.errors import InvalidCluster
from cluster_models.gpus import GpuKind


@dataclass(frozen=True, slots=True)
class Calibration:
    """Behaviour of one GPU kind under today's training frameworks; meanings as in ``docs/cost_model.md``.

    Time.  ``sustained_share``: of the achievable matrix rate, what a long run under its power limit keeps;
    ``fp8_share`` the same for 8-bit products.  ``m_half, n_half, k_half``: matrix extents at which the
    rate, each alone, would be half its limit.  ``attention_forward_share, attention_backward_share``: of
    the 16-bit peak, reached by fused attention with long sequences and wide heads; ``head_half`` and
    ``sequence_half`` the head size and sequence at which half is left.  ``memory_share``: of the data
    sheet's memory bandwidth.  ``kernel_s``: launch and tail of one kernel.  ``tensor_overlap``: share hidden of
    those tensor parallel collectives that Megatron runs beside a matrix product of the backward pass.
    ``grouped_share``: of the matrix rate, what grouped products of experts reach; ``sparse_layer_s``: host time
    that routing adds to a sparse layer and pass; ``expert_imbalance``: load of the busiest expert rank over the
    mean.  ``data_overlap``: share of the last backward (first forward)
    that gradient reduction (parameter gathering) can use.  ``step_overhead_s``: work once per step that
    scales with nothing.

    Framework.  ``fused_attention``: FlashAttention-like kernels run.  ``sequence_parallel``: tensor ranks also
    split the sequence outside their blocks.  ``node_dispatch``: a token crosses to a node once for all its
    experts there (DeepEP).  ``gradient_bytes``: width of accumulated and reduced gradients.  ``logit_bytes``:
    bytes that output and loss hold per token and vocabulary entry.

    Memory.  ``runtime_bytes``: CUDA context, libraries and workspaces; ``group_bytes``: communication
    buffers of one process group; ``fragmentation_share``: allocator loss as a share of what comes and goes.
    """

    sustained_share: float
    fp8_share: float
    m_half: float
    n_half: float
    k_half: float
    attention_forward_share: float
    attention_backward_share: float
    head_half: float
    sequence_half: float
    memory_share: float
    kernel_s: float
    tensor_overlap: float
    grouped_share: float
    sparse_layer_s: float
    expert_imbalance: float
    data_overlap: float
    step_overhead_s: float
    fused_attention: bool
    sequence_parallel: bool
    node_dispatch: bool
    gradient_bytes: float
    logit_bytes: float
    runtime_bytes: float
    group_bytes: float
    fragmentation_share: float
    source: str

    def __post_init__(self) -> None:
        for column in fields(self):
            value = getattr(self, column.name)
            if isinstance(value, float) and not value >= 0:
                raise InvalidCluster(f"calibration.{column.name}", value, "must not be negative")


@dataclass(frozen=True, slots=True)
class PublishedScore:
    """Relative error of predicted step times on published training steps of one GPU kind, in sample."""

    steps: int
    median_error: float
    p90_error: float


def published_score(gpu: GpuKind) -> PublishedScore | None:
    """How far predictions for ``gpu`` were off, or ``None`` where no published step was at hand."""
    found = _tables()["scores"].get(gpu.name)
    return None if found is None else PublishedScore(**found)


@cache
def _tables() -> dict[str, dict[str, Any]]:
    text = resources.files("solver.costs").joinpath("data/calibration.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def _calibration(name: str, vendor: str) -> Calibration:
    tables = _tables()
    kinds: dict[str, dict[str, Any]] = tables["kinds"]
    matches = [prefix for prefix in kinds if name.upper().startswith(prefix.upper())]
    own = kinds[max(matches, key=len)] if matches else {}
    values = tables["defaults"] | tables["vendors"].get(vendor, {}) | own
    return Calibration(**{column.name: values[column.name] for column in fields(Calibration)})


def calibration_of(gpu: GpuKind) -> Calibration:
    """The parameters for ``gpu``: its own where fitted, else its vendor's, else the defaults.

    Kinds are matched by the longest prefix of their name, so ``H100`` covers every H100 without an entry.
    """
    return _calibration(gpu.name, gpu.vendor)
