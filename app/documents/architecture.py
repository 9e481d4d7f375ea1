"""A model architecture given by its own numbers; ``cluster_models.model.architecture`` has what fields mean."""

from __future__ import annotations

from pydantic import Field

from app.documents.reading import Count, Flag, Prose, Text, WholeNumber
from app.documents.values import ValueDocument
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import MOST_LAYERS, Experts
from cluster_models.model.layer_kinds import AttentionGate, Mixer, Mlp
from cluster_models.model.mixers import (
    LatentAttention,
    LinearAttention,
    LinearRule,
    SparseAttention,
    StateSpace,
    WindowHeads,
)


class LatentAttentionDocument(ValueDocument[LatentAttention]):
    """Multi-head latent attention (DeepSeek-V2); widths in elements."""

    query_rank: WholeNumber = Field(
        description="Width of the compressed queries; 0 = not compressed.", examples=[1536]
    )
    key_value_rank: Count = Field(description="Width of the compressed keys and values.", examples=[512])
    rope_head_size: Count = Field(description="Rotary part of a query/key head.", examples=[64])
    nope_head_size: Count = Field(description="Other part of a query/key head.", examples=[128])
    value_head_size: Count = Field(description="Width of a value head.", examples=[128])


class LinearAttentionDocument(ValueDocument[LinearAttention]):
    """Linear attention with a state for each head and an output gate; widths in elements."""

    rule: LinearRule = Field(
        description="How a token updates a state: gated_delta (Gated DeltaNet), channel_delta (Kimi Delta "
        "Attention) or decay (Lightning Attention).",
        examples=["gated_delta"],
    )
    key_heads: Count = Field(description="Heads of queries and keys.", examples=[16])
    value_heads: Count = Field(description="Heads of values, a multiple of those of keys.", examples=[32])
    key_head_size: Count = Field(description="Width of a key head.", examples=[128])
    value_head_size: Count = Field(description="Width of a value head.", examples=[128])
    convolution: WholeNumber = Field(
        0, description="Taps of the convolution over queries, keys and values; 0 = none.", examples=[4]
    )
    gate_rank: WholeNumber = Field(
        0, description="Width over which the output gate is projected; 0 = at once.", examples=[128]
    )
    decay_rank: WholeNumber = Field(
        0, description="Width over which the decay of each channel is projected; 0 = at once.", examples=[128]
    )


class StateSpaceDocument(ValueDocument[StateSpace]):
    """A selective state space: Mamba-2, or with a step_rank Mamba; widths in elements."""

    heads: Count = Field(description="Heads; in Mamba each channel is one.", examples=[128])
    head_size: Count = Field(description="Channels of a head; 1 in Mamba.", examples=[64])
    state: Count = Field(description="Elements of state of each channel.", examples=[128])
    groups: Count = Field(1, description="Groups of heads that share what writes and reads states.", examples=[8])
    convolution: Count = Field(4, description="Taps of the convolution.", examples=[4])
    convolution_bias: Flag = Field(True, description="The convolution has a bias.", examples=[True])
    projection_bias: Flag = Field(False, description="The projections have biases.", examples=[False])
    norm: Flag = Field(
        True, description="Its output is normalised; in Mamba steps and what writes and reads.", examples=[True]
    )
    step_rank: WholeNumber = Field(
        0, description="Width that Mamba projects steps from; 0 = Mamba-2.", examples=[0]
    )


class SparseAttentionDocument(ValueDocument[SparseAttention]):
    """An indexer that picks the tokens which full attention attends to (DeepSeek-V3.2)."""

    heads: Count = Field(description="Query heads of the indexer.", examples=[64])
    head_size: Count = Field(description="Width of its queries and of its key.", examples=[128])
    top_k: Count = Field(description="Tokens that it picks for each query.", examples=[2048])


class WindowHeadsDocument(ValueDocument[WindowHeads]):
    """Heads of windowed attention where they differ from those of full attention."""

    heads: Count = Field(description="Query heads.", examples=[96])
    kv_heads: Count = Field(description="Key/value heads.", examples=[8])
    head_size: Count = Field(description="Width of a query/key head.", examples=[128])


class ExpertsDocument(ValueDocument[Experts]):
    """The mixture-of-experts part; widths in elements."""

    count: Count = Field(description="Routed experts of a sparse layer.", examples=[64])
    active: Count = Field(description="Routed experts each token passes through.", examples=[8])
    hidden: Count = Field(description="Hidden width of one routed expert.", examples=[1024])
    shared_hidden: WholeNumber = Field(
        0, description="Hidden width of all always-active experts together.", examples=[0]
    )
    dense_layers: WholeNumber = Field(0, description="Leading layers with a dense MLP.", examples=[1])
    layer_period: Count = Field(1, description="After those, one layer in so many is sparse.", examples=[1])
    shared_gate: Flag = Field(False, description="A learned gate weighs the shared experts.", examples=[False])
    router_bias: Flag = Field(False, description="The router has a bias for each expert.", examples=[False])
    router_groups: Count = Field(1, description="Equal groups of consecutive experts.", examples=[1])
    active_groups: Count = Field(1, description="How many of these a token's experts may lie in.", examples=[1])
    latent: WholeNumber = Field(
        0, description="Width to which tokens are projected before they travel to experts; 0 = none.", examples=[0]
    )


class ArchitectureDocument(ValueDocument[Architecture]):
    """A decoder-only transformer; widths in elements."""

    name: Text = Field(description="What to call the model.", examples=["our-13b"])
    layers: Count = Field(description="Decoder layers.", examples=[40])
    hidden: Count = Field(description="Model width.", examples=[5120])
    heads: Count = Field(description="Query heads.", examples=[40])
    kv_heads: Count = Field(description="Key/value heads; must divide heads.", examples=[8])
    head_size: Count = Field(description="Width of a query/key head.", examples=[128])
    mlp_hidden: WholeNumber = Field(
        description="Hidden width of a dense MLP; 0 where every layer is sparse.", examples=[13824]
    )
    vocabulary: Count = Field(description="Tokens of the vocabulary.", examples=[128256])
    gated_mlp: Flag = Field(description="Three MLP matrices (SwiGLU) instead of two.", examples=[True])
    tied_embeddings: Flag = Field(description="Input embedding and output projection are one.", examples=[False])
    attention_bias: Flag = Field(False, description="Bias on query, key and value.", examples=[False])
    mlp_bias: Flag = Field(False, description="Bias on the MLP matrices.", examples=[False])
    learned_positions: WholeNumber = Field(
        0, description="Length of a learned position table; 0 = none.", examples=[0]
    )
    sliding_window: Count | None = Field(
        None, description="Tokens a windowed layer attends to; absent = full attention.", examples=[4096]
    )
    window_period: Count = Field(
        1, description="1 = all layers are windowed; n = all but every n-th.", examples=[2]
    )
    latent_attention: LatentAttentionDocument | None = Field(
        None, description="Present where attention is latent (MLA)."
    )
    experts: ExpertsDocument | None = Field(None, description="Present where the model has experts.")
    max_sequence: Count | None = Field(None, description="Longest sequence the model is made for.", examples=[8192])
    source: Prose = Field("", description="Where the numbers come from.", examples=["our training config"])
    attention_output_bias: Flag = Field(
        False, description="Bias on the output projection of attention.", examples=[False]
    )
    norm_vectors: WholeNumber = Field(
        1, description="Learned vectors of a norm: 1 = RMSNorm, 2 = LayerNorm, 0 = none.", examples=[1]
    )
    norms_per_block: Count = Field(1, description="Norms around each block.", examples=[1])
    query_key_norm_parameters: WholeNumber = Field(
        0, description="Weights of one layer that normalise queries and keys.", examples=[0]
    )
    attention_sinks: Flag = Field(False, description="Each head has a learned sink logit.", examples=[False])
    chunked_window: Flag = Field(
        False, description="The window is a fixed block instead of one that slides.", examples=[False]
    )
    prediction_layers: WholeNumber = Field(0, description="Multi-token prediction layers.", examples=[0])
    mixers: list[Mixer] = Field(
        default_factory=list,
        max_length=MOST_LAYERS,
        description="What mixes the tokens of each layer, over and over until all layers have one; absent = "
        "attention by sliding_window and window_period.",
        examples=[["linear", "linear", "linear", "full"]],
    )
    mlps: list[Mlp] = Field(
        default_factory=list,
        max_length=MOST_LAYERS,
        description="The MLP of each layer likewise; absent = by experts.",
        examples=[["dense", "experts"]],
    )
    linear_attention: LinearAttentionDocument | None = Field(
        None, description="Present where mixers list linear ones."
    )
    state_space: StateSpaceDocument | None = Field(None, description="Present where mixers list state spaces.")
    sparse_attention: SparseAttentionDocument | None = Field(
        None, description="Present where an indexer picks the tokens that full attention attends to."
    )
    window_heads: WindowHeadsDocument | None = Field(
        None, description="Present where windowed attention has heads of its own."
    )
    value_head_size: WholeNumber = Field(
        0, description="Width of a value head; 0 = as wide as keys.", examples=[128]
    )
    attention_gate: AttentionGate = Field(
        AttentionGate.NONE, description="What a gate weighs of attention's output.", examples=["element"]
    )
    short_convolution: WholeNumber = Field(
        0, description="Taps of the convolution of layers whose mixer is one; 0 = none.", examples=[3]
    )
