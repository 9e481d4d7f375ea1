"""The shape of a decoder-only transformer: all that time, memory and legality depend on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from cluster_models.errors import InvalidModel
from cluster_models.model.experts import MOST_LAYERS, Experts
from cluster_models.model.layer_kinds import AttentionGate, LayerKind, Mixer, Mlp, ModelPart
from cluster_models.model.mixers import (
    MOST_WIDTH,
    LatentAttention,
    LinearAttention,
    LinearRule,
    SparseAttention,
    StateSpace,
    WindowHeads,
)
from cluster_models.model.patterns import check_patterns, kind_numbers, layer_kinds, layer_pattern

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
    ("value_head_size", 0, MOST_WIDTH),
    ("short_convolution", 0, MOST_WIDTH),
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

    Layers of other kinds: ``mixers`` and ``mlps`` list what each layer is made of, over and over until all layers
    have one; empty: attention by ``sliding_window`` and ``window_period``, and an MLP by ``experts``.
    ``linear_attention``, ``state_space`` and ``short_convolution`` (taps) are the sizes of mixers that are listed;
    ``window_heads`` those of windowed attention where it has its own.  ``value_head_size``: width of a value head,
    0 = as wide as keys.  ``attention_gate``: what a sigmoid gate weighs of attention's output (Qwen3-Next: each
    element).  ``sparse_attention``: an indexer picks the tokens that full attention attends to (DeepSeek-V3.2).

    ``prediction_layers`` counts multi-token prediction layers (DeepSeek-V3, arXiv 2412.19437, section 2.2): each a
    projection of hidden state and next embedding to one width and a decoder layer like the last, trained beside
    the model and planned for; they are not part of ``layers``, ``parameters()`` or the FLOPs counted per model.
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
    mixers: tuple[Mixer, ...] = ()
    mlps: tuple[Mlp, ...] = ()
    linear_attention: LinearAttention | None = None
    state_space: StateSpace | None = None
    sparse_attention: SparseAttention | None = None
    window_heads: WindowHeads | None = None
    value_head_size: int = 0
    attention_gate: AttentionGate = AttentionGate.NONE
    short_convolution: int = 0

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise InvalidModel(f"model.{name}", value, f"must lie in {least}..{most}")
        if self.heads % self.kv_heads:
            raise InvalidModel("model.kv_heads", self.kv_heads, f"must divide the {self.heads} attention heads")
        check_patterns(self)
        if self.experts is not None and not self.sparse_layers:
            raise InvalidModel(
                "model.mlps" if self.mlps else "model.experts.dense_layers",
                list(self.mlps) or self.experts.dense_layers,
                f"leaves none of the {self.layers} layers with experts",
            )
        if self.mlp_hidden < 1 and any(kind.mlp is Mlp.DENSE for kind in self.layer_kinds):
            raise InvalidModel("model.mlp_hidden", self.mlp_hidden, "must be at least 1 for the dense layers")

    def is_sparse_layer(self, layer: int) -> bool:
        """Whether layer ``layer`` (from 0) has experts."""
        return self.layer_pattern[layer].sparse

    @property
    def sparse_pattern(self) -> tuple[bool, ...]:
        """For each layer in order, whether it has experts."""
        return tuple(kind.sparse for kind in self.layer_pattern)

    @property
    def windowed_pattern(self) -> tuple[bool, ...]:
        """For each layer in order, whether its attention is windowed."""
        return tuple(kind.mixer is Mixer.WINDOW for kind in self.layer_pattern)

    @property
    def layer_pattern(self) -> tuple[LayerKind, ...]:
        """The kind of each layer in order."""
        return layer_pattern(self)

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The kinds of layers that the model has, in the order of their first layers."""
        return layer_kinds(self)

    @property
    def mixer_set(self) -> tuple[Mixer, ...]:
        """The mixers that its layers have, each once."""
        return tuple(dict.fromkeys(kind.mixer for kind in self.layer_kinds))

    @property
    def kind_numbers(self) -> tuple[int, ...]:
        """For each layer in order, the index of its kind in ``layer_kinds``."""
        return kind_numbers(self)

    @property
    def parts(self) -> frozenset[ModelPart]:
        """The parts that it has of those that not every framework trains."""
        rule = self.linear_attention.rule if self.linear_attention else None
        has = {
            ModelPart.GATED_DELTA_NET: rule is LinearRule.GATED_DELTA,
            ModelPart.KIMI_DELTA_ATTENTION: rule is LinearRule.CHANNEL_DELTA,
            ModelPart.LIGHTNING_ATTENTION: rule is LinearRule.DECAY,
            ModelPart.MAMBA: self.state_space is not None and self.state_space.step_rank > 0,
            ModelPart.MAMBA_2: self.state_space is not None and self.state_space.step_rank == 0,
            ModelPart.ATTENTION_GATE: self.attention_gate is AttentionGate.ELEMENT,
            ModelPart.HEAD_GATE: self.attention_gate is AttentionGate.HEAD,
            ModelPart.WINDOW_HEADS: self.window_heads is not None,
            ModelPart.PARALLEL_MIXERS: any(kind.mixer is Mixer.PARALLEL for kind in self.layer_kinds),
            ModelPart.SHORT_CONVOLUTION: self.short_convolution > 0,
            ModelPart.SPARSE_ATTENTION: self.sparse_attention is not None,
            ModelPart.LATENT_EXPERTS: self.experts is not None and self.experts.latent > 0,
        }
        return frozenset(part for part, held in has.items() if held)

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

    def of_mixer(self, mixer: Mixer) -> Architecture:
        """The model with the attention heads that layers of ``mixer`` have as its own."""
        return _with_window_heads(self) if mixer is Mixer.WINDOW and self.window_heads else self

    @property
    def head_widths(self) -> tuple[int, int]:
        """Widths of a key head and of a value head as the attention core sees them."""
        if (mla := self.latent_attention) is not None:
            return mla.nope_head_size + mla.rope_head_size, mla.value_head_size
        return self.head_size, self.value_head_size or self.head_size

    @property
    def gate_width(self) -> int:
        """Width of the gate on attention's output."""
        per_head = {AttentionGate.NONE: 0, AttentionGate.HEAD: 1, AttentionGate.ELEMENT: self.head_widths[1]}
        return self.heads * per_head[self.attention_gate]

    def attention_matrix_parameters(self) -> int:
        """Weights of one layer's attention projections, without biases and norms."""
        h, (key, value) = self.hidden, self.head_widths
        gate = h * self.gate_width
        if (mla := self.latent_attention) is None:
            matrices = h * (key + value) * (self.heads + self.kv_heads)
        else:
            matrices = mla.matrices(h, self.heads)
        if (sparse := self.sparse_attention) is not None:
            matrices += sparse.matrices(h, mla.query_rank if mla else 0)
        return matrices + gate

    def attention_parameters(self) -> int:
        """Parameters of one layer's attention block, its norms and biases included."""
        if (mla := self.latent_attention) is None:
            key, value = self.head_widths
            bias_width = self.heads * key + self.kv_heads * (key + value)
            latent_norms = 0
        else:  # only the compressing projections may carry a bias
            bias_width = mla.query_rank + mla.key_value_rank + mla.rope_head_size
            latent_norms = mla.query_rank + mla.key_value_rank
        total = self.attention_matrix_parameters() + self.norm_parameters() + latent_norms
        total += bias_width * self.attention_bias + self.hidden * self.attention_output_bias
        total += self.sparse_attention.small if self.sparse_attention else 0
        return total + self.query_key_norm_parameters + self.heads * self.attention_sinks

    def mixer_matrix_parameters(self, mixer: Mixer) -> int:
        """Weights of the matrix products of one layer's mixer."""
        h = self.hidden
        attention = self.of_mixer(mixer).attention_matrix_parameters()
        match mixer:
            case Mixer.LINEAR if self.linear_attention:
                return self.linear_attention.matrices(h)
            case Mixer.STATE_SPACE if self.state_space:
                return self.state_space.matrices(h)
            case Mixer.PARALLEL if self.state_space:
                return attention + self.state_space.matrices(h)
            case Mixer.CONVOLUTION:
                return 4 * h * h  # into three streams, out of one
            case Mixer.NONE:
                return 0
            case _:
                return attention

    def mixer_parameters(self, mixer: Mixer) -> int:
        """Parameters of one layer's mixer, its norms and biases included."""
        h = self.hidden
        whole = self.mixer_matrix_parameters(mixer) + self.norm_parameters()
        attention = self.of_mixer(mixer).attention_parameters()
        match mixer:
            case Mixer.LINEAR if linear := self.linear_attention:
                return whole + linear.small + linear.repeated
            case Mixer.STATE_SPACE if space := self.state_space:
                return whole + space.small(h) + space.repeated
            case Mixer.PARALLEL if space := self.state_space:
                return attention + space.matrices(h) + space.small(h) + space.repeated
            case Mixer.CONVOLUTION:
                return whole + h * self.short_convolution
            case Mixer.NONE:
                return 0
            case _:
                return attention

    def _mlp_parameters(self, mlp_hidden: int, width: int) -> int:
        bias = (self.mlp_matrices - 1) * mlp_hidden + width if self.mlp_bias else 0
        return self.mlp_matrices * width * mlp_hidden + bias

    def dense_mlp_parameters(self) -> int:
        """Parameters of one dense layer's MLP and its norms; 0 where no layer has one."""
        if not self.mlp_hidden:
            return 0
        return self._mlp_parameters(self.mlp_hidden, self.hidden) + self.norm_parameters()

    @property
    def expert_width(self) -> int:
        """Width of what travels to the routed experts and back."""
        return self.experts.latent or self.hidden if self.experts else self.hidden

    def expert_parameters(self) -> int:
        """Parameters of one routed expert; 0 for a dense model."""
        return 0 if self.experts is None else self._mlp_parameters(self.experts.hidden, self.expert_width)

    def sparse_common_parameters(self) -> int:
        """Parameters of one sparse layer's MLP that are not routed: router, shared experts, norms."""
        if (experts := self.experts) is None:
            return 0
        shared = self._mlp_parameters(experts.shared_hidden, self.hidden) if experts.shared_hidden else 0
        router = self.hidden * experts.count + experts.count * experts.router_bias
        latent = 2 * self.hidden * experts.latent
        return shared + self.hidden * experts.shared_gate + router + latent + self.norm_parameters()

    def mlp_parameters(self, mlp: Mlp) -> int:
        """Parameters of one layer's MLP and its norms, without routed experts."""
        return {
            Mlp.DENSE: self.dense_mlp_parameters(),
            Mlp.EXPERTS: self.sparse_common_parameters(),
            Mlp.NONE: 0,
        }[mlp]

    def layer_parameters(self, kind: LayerKind) -> int:
        """Parameters of one layer of ``kind``, its experts included."""
        experts = self.experts.count * self.expert_parameters() if kind.sparse and self.experts else 0
        return self.mixer_parameters(kind.mixer) + self.mlp_parameters(kind.mlp) + experts

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
def _with_window_heads(model: Architecture) -> Architecture:
    own = model.window_heads
    assert own is not None
    return replace(model, heads=own.heads, kv_heads=own.kv_heads, head_size=own.head_size, window_heads=None)
