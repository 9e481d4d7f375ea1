"""Time of a step of one layer, where it was not measured: tokens that are computed, weights that are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from app.experts.links import Given
from cluster_models.cluster.gpus import GpuKind
from solver.experts.nodewise import usual_rates

DECODED_TOKENS: Final = 128.0
"""Tokens of a GPU in a step of decoding where nothing was said: one for each of so many sequences."""
WEIGHT_BYTES: Final = 2.0
"""Most bytes of a weight in products; what an expert has beyond that are states of an optimiser, not read there."""
_DECODING: Final = "decod"


def with_tokens(given: Given, names: Sequence[str]) -> tuple[Given, tuple[str, ...]]:
    """Given facts with the tokens of a GPU in a step, and a sentence where workloads ``names`` decided them."""
    if given.tokens is not None:
        return given, ()
    if all(_DECODING in name.lower() for name in names):
        sentence = f"no tokens of a GPU given: {DECODED_TOKENS:g} in a step, as the workloads are named decode"
        return replace(given, tokens=DECODED_TOKENS), (sentence,)
    tokens = usual_rates().tokens
    sentence = (
        f"no tokens of a GPU given: {tokens:g} in a step, as in prefill; decoding has far fewer and gains less"
    )
    return replace(given, tokens=tokens), (sentence,)


def reading_s(weight_bytes: float, kind: GpuKind) -> float:
    """Seconds in which a GPU reads weights from its memory: a step takes them however few tokens there are."""
    return weight_bytes / kind.memory_bytes_per_s
