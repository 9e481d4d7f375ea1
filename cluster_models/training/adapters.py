"""Low-rank adapters that are trained beside frozen weights (LoRA, arXiv 2106.09685; QLoRA, arXiv 2305.14314)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from cluster_models.errors import InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import LayerKind, Mixer, Mlp

HIGHEST_RANK: Final = 4096


class AdapterModule(StrEnum):
    """Linear layers beside which adapters are trained (Megatron-Core's names)."""

    QUERY_KEY_VALUE = "linear_qkv"
    """Queries, keys and values."""
    ATTENTION_OUTPUT = "linear_proj"
    """The output of attention."""
    MLP_IN = "linear_fc1"
    """Gate and up projection of a dense MLP or a shared expert."""
    MLP_OUT = "linear_fc2"
    """Their down projection."""


OUTPUT_MODULES: Final = (AdapterModule.ATTENTION_OUTPUT, AdapterModule.MLP_OUT)
"""Modules whose inputs tensor ranks share out; of the others they share out the outputs."""
MLP_MODULES: Final = (AdapterModule.MLP_IN, AdapterModule.MLP_OUT)


class FrozenFormat(StrEnum):
    """Format of frozen weights in memory."""

    UNQUANTISED = "unquantised"
    """The format of weights that are trained."""
    NF4 = "nf4"
    """Four bits by a table of normal quantiles, with scales of 64 weights that are quantised as well."""


NF4_BYTES: Final = 0.5 + (8.0 / 64.0 + 32.0 / (64.0 * 256.0)) / 8.0
"""Bytes of a weight: 4 bits, 8 of a scale for 64 weights, 32 for 256 scales (arXiv 2305.14314, section 3)."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """Adapters of ``rank`` beside each of ``modules`` in every layer; all else is frozen in the format given."""

    rank: int
    modules: tuple[AdapterModule, ...] = tuple(AdapterModule)
    frozen_weights: FrozenFormat = FrozenFormat.UNQUANTISED

    def __post_init__(self) -> None:
        if not 1 <= self.rank <= HIGHEST_RANK:
            raise InvalidWorkload("workload.adapters.rank", self.rank, f"must lie in 1..{HIGHEST_RANK}")
        if not self.modules:
            known = ", ".join(AdapterModule)
            raise InvalidWorkload("workload.adapters.modules", [], "names nothing to train", f"use some of {known}")

    @property
    def words(self) -> str:
        """The adapters in one line."""
        return f"rank {self.rank} beside {', '.join(self.modules)}; frozen weights {self.frozen_weights}"


class AdaptedLinear(NamedTuple):
    """A linear layer with an adapter: its module and its whole widths, before tensor ranks cut it."""

    module: AdapterModule
    inputs: int
    outputs: int


@lru_cache(maxsize=256)
def adapted_linears(
    architecture: Architecture, kind: LayerKind, adapters: Adapters, *, fused: bool
) -> tuple[AdaptedLinear, ...]:
    """The linear layers with an adapter in a layer of ``kind``; routed experts have none.

    ``fused``: queries, keys and values are one linear layer with one adapter, and gate and up projection another
    (Megatron-Core); without it each has its own (Transformers).
    """
    h = architecture.hidden
    found: list[AdaptedLinear] = []

    def add(module: AdapterModule, inputs: int, *outputs: int) -> None:
        if module in adapters.modules:
            each = (sum(outputs),) if fused else outputs
            found.extend(AdaptedLinear(module, inputs, width) for width in each)

    if kind.mixer is not Mixer.NONE:
        own = architecture.of_mixer(kind.mixer)
        key, value = own.head_widths
        queries = own.heads * key + own.gate_width
        add(AdapterModule.QUERY_KEY_VALUE, h, queries, own.kv_heads * key, own.kv_heads * value)
        add(AdapterModule.ATTENTION_OUTPUT, own.heads * value, h)
    width = architecture.mlp_hidden if kind.mlp is Mlp.DENSE else 0
    if kind.sparse and architecture.experts is not None:
        width = architecture.experts.shared_hidden
    if width:
        add(AdapterModule.MLP_IN, h, *[width] * (architecture.mlp_matrices - 1))
        add(AdapterModule.MLP_OUT, width, h)
    return tuple(found)


def adapter_parameters(architecture: Architecture, kind: LayerKind, adapters: Adapters, *, fused: bool) -> int:
    """Parameters of the adapters in a layer of ``kind``: r (k + n) beside a k x n weight."""
    linears = adapted_linears(architecture, kind, adapters, fused=fused)
    return adapters.rank * sum(linear.inputs + linear.outputs for linear in linears)
