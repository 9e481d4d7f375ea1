"""Keys under which a Hugging Face ``config.json`` keeps what makes an architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from cluster_models.model.layer_kinds import AttentionGate, Mixer, Mlp
from cluster_models.model.mixers import LinearAttention, SparseAttention, StateSpace, WindowHeads

Config = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Flag:
    """A yes or no that the file may state under ``key``; ``default`` is the configuration class's."""

    key: str
    default: bool


class QueryKeyNorm(Enum):
    """Learned normalisation of queries and keys."""

    NONE = "none"
    PER_HEAD = "per head"
    """One weight per element of a head, shared by the heads."""
    WHOLE = "whole"
    """One weight per element of all heads."""


@dataclass(frozen=True, slots=True)
class WindowKeys:
    """Windowed attention: ``key`` holds the span (null = none).

    ``period``: the last of so many layers attends fully (1 = none does), replaced by ``period_key``.
    ``pattern_key`` lists per layer 1 for windowed and 0 for full.  With ``switch`` windows exist only where
    that flag is true, from layer ``first_layer_key`` on.
    """

    key: str = "sliding_window"
    required: bool = False
    period: int = 1
    period_key: str | None = None
    pattern_key: str | None = None
    switch: Flag | None = None
    first_layer_key: str | None = None
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class ExpertKeys:
    """Experts: number, active number and width, the shared ones, and which layers have them.

    Layers are sparse from ``first_key`` on where ``layer % frequency_key == 0`` (DeepSeek), or where
    ``(layer + 1) % step_key == 0`` (Qwen, Llama 4), except those of ``dense_list_key``; or exactly those of
    ``sparse_list_key``; ``mlp_layer_types``, where a file has it, tells before all of these.  ``first`` is the
    first sparse layer where a file has no ``first_key``.  ``shared_each_key``: width of one shared expert, the
    routed ones' unless it is there.  ``optional``: a null number of experts, or none, is a dense model.
    """

    count: str
    active: str
    hidden: str
    optional: bool = False
    shared_hidden: str | None = None
    shared_count: str | None = None
    one_shared: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    groups: str | None = None
    active_groups: str | None = None
    first_key: str | None = None
    frequency_key: str | None = None
    step_key: str | None = None
    dense_list_key: str | None = None
    sparse_list_key: str | None = None
    first: int | None = None
    shared_each_key: str | None = None
    latent_key: str | None = None


@dataclass(frozen=True, slots=True)
class Parts:
    """Layers in a file other than a plain transformer's; fields as in ``Architecture``."""

    mixers: tuple[Mixer, ...] = ()
    mlps: tuple[Mlp, ...] = ()
    linear_attention: LinearAttention | None = None
    state_space: StateSpace | None = None
    sparse_attention: SparseAttention | None = None
    window_heads: WindowHeads | None = None
    short_convolution: int = 0
    value_head_size: int = 0
    mlp_hidden: int | None = None
    """The width of a dense MLP, where no single key holds it."""
    layers: int | None = None
    """The number of layers, where no single key holds it."""


@dataclass(frozen=True, slots=True)
class Family:
    """One ``model_type``; ``aliases`` are other types and ``architectures`` entries that read the same.

    ``parts``: reads what no other field tells, from the file and the number of layers (0 where
    ``layers_optional`` leaves it to them).  ``assumed``: what is taken for granted, as the end of a sentence.
    """

    model_type: str
    aliases: tuple[str, ...]
    layers: str = "num_hidden_layers"
    layers_optional: bool = False
    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"
    vocabulary: str = "vocab_size"
    max_sequence: str = "max_position_embeddings"
    mlp_hidden: str | None = "intermediate_size"
    mlp_hidden_optional: bool = False
    mlp_defaults_to_four_hidden: bool = False
    kv_heads: str | None = "num_key_value_heads"
    kv_heads_default_to_heads: bool = False
    head_size_required: bool = False
    head_size: str = "head_dim"
    gated_mlp: bool = True
    tied_embeddings: bool | Flag = False
    attention_bias: bool | Flag = False
    attention_output_bias: bool | Flag = False
    mlp_bias: bool | Flag = False
    learned_positions: bool = False
    norm_vectors: int = 1
    norms_per_block: int = 1
    query_key_norm: QueryKeyNorm | Flag = QueryKeyNorm.NONE
    attention_sinks: bool = False
    latent_attention: bool = False
    window: WindowKeys | None = None
    experts: ExpertKeys | None = None
    attention_gate: AttentionGate = AttentionGate.NONE
    parts: Callable[[Config, int], Parts] | None = None
    prediction_layers: str = "num_nextn_predict_layers"
    assumed: str = ""
