"""Layers whose activations pipeline ranks hold, worked out once for candidates that hold the same."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from solver.candidates import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A moment of the step that may be a rank's peak.

    ``in_flight`` (u, v, P) micro-batches whose activations chunk ``v * P + rank`` holds, ``held_layers`` (n, P, K)
    the layers of each kind that these are of, ``beside`` (n, P) bytes of stage outputs and of what waits for
    gradients of weights.  Candidate ``i`` is as ``in_flight[alike[i]]`` (``MemoryAccount``).
    """

    in_flight: FloatArray
    held_layers: FloatArray
    beside: FloatArray

    def take(self, rows: IntArray | slice) -> Moment:
        """The moment of some candidates."""
        return replace(self, held_layers=self.held_layers[rows], beside=self.beside[rows])


def distinct_holders(
    micro_batches: IntArray, layers: IntArray, spread: IntArray | None
) -> tuple[IntArray, IntArray]:
    """The first of all candidates that hold as much of as many layers, and (n,) which of these each one is like."""
    if spread is None:
        spread = np.arange(len(micro_batches)) if layers.ndim > 2 else np.zeros_like(micro_batches)
    codes = spread * (micro_batches.max(initial=0) + 1) + micro_batches
    _, first, alike = np.unique(codes, return_index=True, return_inverse=True)
    return first, alike


def held_layers(layers: IntArray | FloatArray, in_flight: FloatArray) -> FloatArray:
    """(u, P, K) layers of each kind that each rank holds: of its chunks' ``layers`` those in flight."""
    chunks = layers.reshape(-1, *in_flight.shape[1:], layers.shape[-1])
    return np.stack([(chunks[..., kind] * in_flight).sum(axis=1) for kind in range(layers.shape[-1])], axis=-1)
