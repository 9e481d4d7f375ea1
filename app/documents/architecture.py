"""A model architecture given by its own numbers; ``cluster_models.model.architecture`` has what fields mean."""

from __future__ import annotations

from pydantic import Field

from app.documents.reading import Count, Flag, Prose, Text, WholeNumber
from app.documents.values import ValueDocument
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.model.mixers import LatentAttention


class LatentAttentionDocument(ValueDocument[LatentAttention]):
    """Multi-head latent attention (DeepSeek-V2); widths in elements."""

    query_rank: WholeNumber = Field(
        description="Width of the compressed queries; 0 = not compressed.", examples=[1536]
    )
    key_value_rank: Count = Field(description="Width of the compressed keys and values.", examples=[512])
    rope_head_size: Count = Field(description="Rotary part of a query/key head.", examples=[64])
    nope_head_size: Count = Field(description="Other part of a query/key head.", examples=[128])
    value_head_size: Count = Field(description="Width of a value head.", examples=[128])


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
