"""The shape of a decoder-only transformer: all that time, memory and legality depend on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cluster_models.errors import InvalidModel
from cluster_models.model.layer_kinds import LayerKind, Mixer, Mlp

MOST_LAYERS: Final = 2_000
"""Far beyond any model; keeps a slip of the pen from costing minutes."""

MOST_WIDTH: Final = 10**7
MOST_EXPERTS: Final = 100_000
MOST_TOKENS: Final = 10**9
"""Bound for a vocabulary, a position table or a window."""

_RANGES: Final = (
    ("layers", 1, MOST_LAYERS),
    ("hidden", 1, MOST_WIDTH),
    ("heads", 1, MOST_WIDTH),
    ("kv_heads", 1, MOST_WIDTH),
    ("head_size", 1, MOST_WIDTH),
    ("mlp_hidden", 0, MOST_WIDTH),
    ("vocabulary", 1, MOST_TOKENS),
    ("learned_positions", 0, MOST_TOKENS),
    ("sliding_window", 1, MOST_TOKENS),
    ("window_period", 1, MOST_TOKENS),
    ("max_sequence", 1, MOST_TOKENS),
    ("norm_vectors", 0, MOST_WIDTH),
    ("norms_per_block", 1, MOST_WIDTH),
    ("query_key_norm_parameters", 0, MOST_TOKENS),
    ("prediction_layers", 0, MOST_LAYERS),
)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    ``query_rank`` is 0 where queries are not compressed (DeepSeek-V2-Lite).
    """

    query_rank: int
    key_value_rank: int
    rope_head_size: int
    nope_head_size: int
    value_head_size: int

    def __post_init__(self) -> None:
        for name in self.__slots__:
            least = 0 if name == "query_rank" else 1
            if not least <= getattr(self, name) <= MOST_WIDTH:
                raise InvalidModel(
                    f"model.latent_attention.{name}", getattr(self, name), f"must lie in {least}..{MOST_WIDTH}"
                )


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture-of-experts part of a model.

    ``dense_layers`` leading layers keep a dense MLP; afterwards every ``layer_period``-th layer is sparse,
    the first of them at index ``dense_layers``.  ``shared_hidden`` is the total hidden width of always-active
    experts (0 = none) and ``shared_gate`` says that a learned scalar gate weighs them (Qwen2-MoE).
    ``router_bias``: the router has one bias per expert (gpt-oss; DeepSeek-V3's correction bias).
    ``router_groups``: consecutive experts form so many equal groups, and all experts of a token lie in
    ``active_groups`` of them (DeepSeek-V3's node-limited routing, arXiv 2412.19437, section 2.1.2); 1 = no limit.
    """

    count: int
    active: int
    hidden: int
    shared_hidden: int = 0
    dense_layers: int = 0
    layer_period: int = 1
    shared_gate: bool = False
    router_bias: bool = False
    router_groups: int = 1
    active_groups: int = 1

    def __post_init__(self) -> None:
        for name, least, most in (
            ("count", 1, MOST_EXPERTS),
            ("hidden", 1, MOST_WIDTH),
            ("shared_hidden", 0, MOST_WIDTH),
            ("dense_layers", 0, MOST_LAYERS),
            ("layer_period", 1, MOST_LAYERS),
            ("router_groups", 1, self.count),
            ("active_groups", 1, self.router_groups),
        ):
            if not least <= getattr(self, name) <= most:
                raise InvalidModel(f"model.experts.{name}", getattr(self, name), f"must lie in {least}..{most}")
        if not 1 <= self.active <= self.count:
            raise InvalidModel("model.experts.active", self.active, f"must lie in 1..{self.count}")
        if self.count % self.router_groups:
            raise InvalidModel(
                "model.experts.router_groups", self.router_groups, f"must divide the {self.count} experts"
            )


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model.  Widths are in elements, counts per model.

    ``head_size`` is the width of a query/key head (with latent attention: of its two parts together) and
    ``mlp_hidden`` the width of a dense layer's MLP (0 where every layer is sparse).  ``gated_mlp`` is the
    three-matrix MLP (SwiGLU), else two matrices.

    Attention span: ``sliding_window`` is the span of windowed layers (``None`` = all attend to all earlier
    tokens); with ``window_period`` 1 all layers are windowed, else the last layer of every period of so many
    is not (2 = gpt-oss and Gemma 2, 6 = Gemma 3).  ``chunked_window``: the window is a fixed block of tokens
    instead of one that slides (Llama 4).

    Small parameters: ``attention_bias`` is a bias on the query, key and value projections,
    ``attention_output_bias`` on the output projection, ``mlp_bias`` on all MLP and expert matrices.
    ``norm_vectors`` counts learned vectors per norm (1 = RMSNorm, 2 = LayerNorm with a shift, 0 = none) and
    ``norms_per_block`` the norms around each attention or MLP block (2 = Gemma 2 and 3).
    ``query_key_norm_parameters`` are one layer's weights that normalise queries and keys;
    ``attention_sinks``: each head has a learned sink logit (gpt-oss).
    ``learned_positions`` is the length of a learned position table, 0 = none.

    ``prediction_layers`` counts multi-token prediction layers (DeepSeek-V3, arXiv 2412.19437, section 2.2): each a
    projection of hidden state and next embedding to one width and a decoder layer like the last, trained beside
    the model and planned for; they are no part of ``layers``, ``parameters()`` or the FLOPs counted per model.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    mlp_hidden: int
    vocabulary: int
    gated_mlp: bool
    tied_embeddings: bool
    attention_bias: bool = False
    mlp_bias: bool = False
    learned_positions: int = 0
    sliding_window: int | None = None
    window_period: int = 1
    latent_attention: LatentAttention | None = None
    experts: Experts | None = None
    max_sequence: int | None = None
    source: str = ""
    attention_output_bias: bool = False
    norm_vectors: int = 1
    norms_per_block: int = 1
    query_key_norm_parameters: int = 0
    attention_sinks: bool = False
    chunked_window: bool = False
    prediction_layers: int = 0

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise InvalidModel(f"model.{name}", value, f"must lie in {least}..{most}")
        if self.heads % self.kv_heads:
            raise InvalidModel("model.kv_heads", self.kv_heads, f"must divide the {self.heads} attention heads")
        if self.experts is not None and not self.sparse_layers:
            raise InvalidModel(
                "model.experts.dense_layers",
                self.experts.dense_layers,
                f"leaves none of the {self.layers} layers with experts",
            )
        if self.mlp_hidden < 1 and self.sparse_layers < self.layers:
            raise InvalidModel("model.mlp_hidden", self.mlp_hidden, "must be at least 1 for the dense layers")

    def is_sparse_layer(self, layer: int) -> bool:
        """Whether layer ``layer`` (from 0) has experts."""
        experts = self.experts
        if experts is None or layer < experts.dense_layers:
            return False
        return (layer - experts.dense_layers) % experts.layer_period == 0

    def is_windowed_layer(self, layer: int) -> bool:
        """Whether layer ``layer`` (from 0) attends to no more than ``sliding_window`` tokens."""
        if self.sliding_window is None:
            return False
        return self.window_period == 1 or (layer + 1) % self.window_period != 0

    @property
    def sparse_pattern(self) -> tuple[bool, ...]:
        """For each layer in order, whether it has experts."""
        return tuple(self.is_sparse_layer(layer) for layer in range(self.layers))

    @property
    def windowed_pattern(self) -> tuple[bool, ...]:
        """For each layer in order, whether its attention is windowed."""
        return tuple(self.is_windowed_layer(layer) for layer in range(self.layers))

    @property
    def layer_pattern(self) -> tuple[LayerKind, ...]:
        """The kind of each layer in order."""
        return _layer_pattern(self)

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The kinds of layers that the model has, in the order of their first layers."""
        return _layer_kinds(self)

    @property
    def kind_numbers(self) -> tuple[int, ...]:
        """For each layer in order, the index of its kind in ``layer_kinds``."""
        return _kind_numbers(self)

    @property
    def sparse_layers(self) -> int:
        """How many layers have experts."""
        return sum(self.sparse_pattern)

    @property
    def mlp_matrices(self) -> int:
        """Weight matrices of one MLP or expert: gate, up and down, or the last two."""
        return 3 if self.gated_mlp else 2

    def norm_parameters(self) -> int:
        """Parameters of the norms of one attention or MLP block."""
        return self.norms_per_block * self.norm_vectors * self.hidden

    def attention_matrix_parameters(self) -> int:
        """Weights of one layer's attention projections, without biases and norms."""
        h, heads = self.hidden, self.heads
        if (mla := self.latent_attention) is None:
            return h * self.head_size * 2 * (heads + self.kv_heads)
        query_width = heads * (mla.nope_head_size + mla.rope_head_size)
        query = mla.query_rank * (h + query_width) if mla.query_rank else h * query_width
        compress = h * (mla.key_value_rank + mla.rope_head_size)
        expand = mla.key_value_rank * heads * (mla.nope_head_size + mla.value_head_size)
        return query + compress + expand + heads * mla.value_head_size * h

    def attention_parameters(self) -> int:
        """Parameters of one layer's attention block, its norms and biases included."""
        if (mla := self.latent_attention) is None:
            bias_width = (self.heads + 2 * self.kv_heads) * self.head_size
            latent_norms = 0
        else:  # only the compressing projections may carry a bias
            bias_width = mla.query_rank + mla.key_value_rank + mla.rope_head_size
            latent_norms = mla.query_rank + mla.key_value_rank
        total = self.attention_matrix_parameters() + self.norm_parameters() + latent_norms
        total += bias_width * self.attention_bias + self.hidden * self.attention_output_bias
        return total + self.query_key_norm_parameters + self.heads * self.attention_sinks

    def _mlp_parameters(self, mlp_hidden: int) -> int:
        bias = (self.mlp_matrices - 1) * mlp_hidden + self.hidden if self.mlp_bias else 0
        return self.mlp_matrices * self.hidden * mlp_hidden + bias

    def dense_mlp_parameters(self) -> int:
        """Parameters of one dense layer's MLP and its norms; 0 where every layer is sparse."""
        return self._mlp_parameters(self.mlp_hidden) + self.norm_parameters() if self.mlp_hidden else 0

    def expert_parameters(self) -> int:
        """Parameters of one routed expert; 0 for a dense model."""
        return 0 if self.experts is None else self._mlp_parameters(self.experts.hidden)

    def sparse_common_parameters(self) -> int:
        """Parameters of one sparse layer's MLP that are not routed: router, shared experts, norms."""
        if (experts := self.experts) is None:
            return 0
        shared = self._mlp_parameters(experts.shared_hidden) if experts.shared_hidden else 0
        router = self.hidden * experts.count + experts.count * experts.router_bias
        return shared + self.hidden * experts.shared_gate + router + self.norm_parameters()

    def layer_parameters(self, kind: LayerKind) -> int:
        """Parameters of one layer of ``kind``, its experts included."""
        if not kind.sparse:
            return self.attention_parameters() + self.dense_mlp_parameters()
        experts = self.experts.count * self.expert_parameters() if self.experts else 0
        return self.attention_parameters() + self.sparse_common_parameters() + experts

    def prediction_projection_parameters(self) -> int:
        """Parameters of the matrix that joins hidden state and next embedding before a prediction layer."""
        return 2 * self.hidden * self.hidden

    def embedding_parameters(self) -> int:
        """Parameters of the input embedding and position table."""
        return self.hidden * (self.vocabulary + self.learned_positions)

    def head_parameters(self) -> int:
        """Parameters of the output projection (counted also when tied) and the final norm."""
        return self.hidden * self.vocabulary + self.norm_vectors * self.hidden

    def parameters(self) -> int:
        """All parameters of the model; tied embeddings count once."""
        total = sum(layers * self.layer_parameters(kind) for kind, layers in Counter(self.layer_pattern).items())
        total += self.embedding_parameters() + self.head_parameters()
        return total - (self.hidden * self.vocabulary if self.tied_embeddings else 0)

    def active_parameters(self) -> int:
        """Parameters that one token passes through; the embedding and the head are counted whole."""
        if self.experts is None:
            return self.parameters()
        idle = self.sparse_layers * (self.experts.count - self.experts.active) * self.expert_parameters()
        return self.parameters() - idle


@lru_cache(maxsize=256)
def _layer_pattern(model: Architecture) -> tuple[LayerKind, ...]:
    return tuple(
        LayerKind(
            Mixer.WINDOW if model.is_windowed_layer(layer) else Mixer.FULL,
            Mlp.EXPERTS if model.is_sparse_layer(layer) else Mlp.DENSE,
        )
        for layer in range(model.layers)
    )


@lru_cache(maxsize=256)
def _layer_kinds(model: Architecture) -> tuple[LayerKind, ...]:
    return tuple(dict.fromkeys(model.layer_pattern))


@lru_cache(maxsize=256)
def _kind_numbers(model: Architecture) -> tuple[int, ...]:
    numbers = {kind: number for number, kind in enumerate(model.layer_kinds)}
    return tuple(numbers[kind] for kind in model.layer_pattern)
