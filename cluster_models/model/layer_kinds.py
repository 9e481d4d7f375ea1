"""Kinds of decoder layers: what mixes the tokens of a sequence, and what works on each token alone."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class Mixer(StrEnum):
    """Mixer of the tokens of a layer."""

    FULL = "full"
    """Attention to all earlier tokens, or to those that an indexer picks of them."""
    WINDOW = "window"
    """Attention to the last ``sliding_window`` tokens, or to those of a block."""
    LINEAR = "linear"
    """Linear attention: a matrix of state for each head, updated token by token."""
    STATE_SPACE = "state_space"
    """A selective state space (Mamba)."""
    PARALLEL = "parallel"
    """Attention and a state space side by side, on the same input (Falcon-H1)."""
    CONVOLUTION = "convolution"
    """A gated convolution over the last few tokens (LFM2)."""
    NONE = "none"
    """A layer that is an MLP alone (Nemotron-H)."""


ATTENDING: Final = frozenset({Mixer.FULL, Mixer.WINDOW, Mixer.PARALLEL})
"""Mixers with softmax attention, whose keys and values context ranks exchange."""


class AttentionGate(StrEnum):
    """Grain of a sigmoid gate on attention's output, projected from the layer's input."""

    NONE = "none"
    HEAD = "head"
    """Each head as a whole."""
    ELEMENT = "element"
    """Each element."""


class Mlp(StrEnum):
    """Part of a layer that works on each token alone."""

    DENSE = "dense"
    EXPERTS = "experts"
    NONE = "none"
    """A layer that is a mixer alone (Nemotron-H)."""


class ModelPart(StrEnum):
    """A part of models that not every framework trains."""

    GATED_DELTA_NET = "gated_delta_net"
    KIMI_DELTA_ATTENTION = "kimi_delta_attention"
    LIGHTNING_ATTENTION = "lightning_attention"
    MAMBA = "mamba"
    MAMBA_2 = "mamba_2"
    PARALLEL_MIXERS = "parallel_mixers"
    ATTENTION_GATE = "attention_gate"
    HEAD_GATE = "head_gate"
    WINDOW_HEADS = "window_heads"
    SHORT_CONVOLUTION = "short_convolution"
    SPARSE_ATTENTION = "sparse_attention"
    LATENT_EXPERTS = "latent_experts"


class LayerKind(NamedTuple):
    """The two halves of a decoder layer."""

    mixer: Mixer
    mlp: Mlp

    @property
    def sparse(self) -> bool:
        """Whether the layer has experts."""
        return self.mlp is Mlp.EXPERTS

    @property
    def attends(self) -> bool:
        """Whether the layer has softmax attention."""
        return self.mixer in ATTENDING
