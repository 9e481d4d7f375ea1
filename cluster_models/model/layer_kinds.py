"""Kinds of decoder layers: what mixes the tokens of a sequence, and what works on each token alone."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Mixer(StrEnum):
    """What mixes the tokens of a layer."""

    FULL = "full"
    """Attention to all earlier tokens."""
    WINDOW = "window"
    """Attention to the last ``sliding_window`` tokens, or to those of a block."""


class Mlp(StrEnum):
    """What works on each token of a layer alone."""

    DENSE = "dense"
    EXPERTS = "experts"


class LayerKind(NamedTuple):
    """The two halves of a decoder layer."""

    mixer: Mixer
    mlp: Mlp

    @property
    def sparse(self) -> bool:
        """Whether the layer has experts."""
        return self.mlp is Mlp.EXPERTS
