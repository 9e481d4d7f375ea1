"""The shape of a decoder-only transformer: all that time, memory and legality depend on."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_models.errors import InvalidModel


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


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture-of-experts part of a model.

    ``dense_layers`` leading layers keep a dense MLP; afterwards every ``layer_period``-th layer is sparse.
    ``shared_hidden`` is the total hidden width of always-active experts (0 = none).
    """

    count: int
    active: int
    hidden: int
    shared_hidden: int = 0
    dense_layers: int = 0
    layer_period: int = 1


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model.  Widths are in elements, counts per model.

    ``head_size`` is the width of a query/key head, ``sliding_window`` the attention span of windowed layers
    (``None`` = full causal attention) and ``window_period`` says that one layer in so many is windowed
    (1 = all, 2 = every other; read only where there is a window).  ``gated_mlp`` is the three-matrix MLP
    (SwiGLU), else two matrices.  ``learned_positions`` is the length of a learned position table, 0 = none.
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

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "kv_heads", "head_size", "vocabulary"):
            if getattr(self, name) < 1:
                raise InvalidModel(f"model.{name}", getattr(self, name), "must be at least 1")
        if self.heads % self.kv_heads:
            raise InvalidModel(
                "model.kv_heads", self.kv_heads, f"must divide the {self.heads} attention heads"
            )
        if self.mlp_hidden < 1 and (self.experts is None or self.experts.dense_layers):
            raise InvalidModel("model.mlp_hidden", self.mlp_hidden, "must be at least 1")
        if self.experts is not None and not 1 <= self.experts.active <= self.experts.count:
            raise InvalidModel(
                "model.experts.active", self.experts.active, f"must lie in 1..{self.experts.count}"
            )

    def is_sparse_layer(self, layer: int) -> bool:
        """Whether layer ``layer`` (from 0) has experts."""
        experts = self.experts
        if experts is None or layer < experts.dense_layers:
            return False
        return (layer - experts.dense_layers) % experts.layer_period == 0

    @property
    def sparse_layers(self) -> int:
        """How many layers have experts."""
        return sum(self.is_sparse_layer(layer) for layer in range(self.layers))

    def attention_parameters(self) -> int:
        """Parameters of one layer's attention block, its norm and biases included."""
        h, heads = self.hidden, self.heads
        if (mla := self.latent_attention) is not None:
            query_width = heads * (mla.nope_head_size + mla.rope_head_size)
            query = (
                h * mla.query_rank + mla.query_rank + mla.query_rank * query_width
                if mla.query_rank
                else h * query_width
            )
            compressed = h * (mla.key_value_rank + mla.rope_head_size) + mla.key_value_rank
            expand = mla.key_value_rank * heads * (mla.nope_head_size + mla.value_head_size)
            return query + compressed + expand + heads * mla.value_head_size * h + h
        q, kv = heads * self.head_size, self.kv_heads * self.head_size
        bias = q + 2 * kv + h if self.attention_bias else 0
        return h * (q + 2 * kv) + q * h + bias + h

    def dense_mlp_parameters(self) -> int:
        """Parameters of one dense layer's MLP and its norm."""
        matrices = 3 if self.gated_mlp else 2
        bias = (self.mlp_hidden * (matrices - 1) + self.hidden) if self.mlp_bias else 0
        return matrices * self.hidden * self.mlp_hidden + bias + self.hidden

    def expert_parameters(self) -> int:
        """Parameters of one routed expert; 0 for a dense model."""
        if self.experts is None:
            return 0
        return (3 if self.gated_mlp else 2) * self.hidden * self.experts.hidden

    def sparse_common_parameters(self) -> int:
        """Parameters of one sparse layer's MLP that every rank keeps: router, shared experts, norm."""
        if self.experts is None:
            return 0
        shared = (3 if self.gated_mlp else 2) * self.hidden * self.experts.shared_hidden
        return shared + self.hidden * self.experts.count + self.hidden

    def embedding_parameters(self) -> int:
        """Parameters of the input embedding and position table."""
        return self.hidden * (self.vocabulary + self.learned_positions)

    def head_parameters(self) -> int:
        """Parameters of the output projection (counted also when tied) and the final norm."""
        return self.hidden * self.vocabulary + self.hidden

    def parameters(self) -> int:
        """All parameters of the model; tied embeddings count once."""
        sparse = self.sparse_layers
        experts = self.experts.count * self.expert_parameters() if self.experts else 0
        total = self.layers * self.attention_parameters()
        total += (self.layers - sparse) * self.dense_mlp_parameters()
        total += sparse * (self.sparse_common_parameters() + experts)
        total += self.embedding_parameters() + self.head_parameters()
        return total - (self.hidden * self.vocabulary if self.tied_embeddings else 0)

    def active_parameters(self) -> int:
        """Parameters that one token passes through, embeddings counted once."""
        if self.experts is None:
            return self.parameters()
        idle = self.sparse_layers * (self.experts.count - self.experts.active) * self.expert_parameters()
        return self.parameters() - idle
