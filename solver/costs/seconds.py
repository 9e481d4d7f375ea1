"""Seconds of both passes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.candidates import BoolArray, FloatArray


@dataclass(frozen=True, slots=True)
class Seconds:
    """Forward and backward seconds, (n,) or (n, C); backward without recomputation unless stated."""

    forward: FloatArray
    backward: FloatArray

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.forward + other.forward, self.backward + other.backward)

    def __mul__(self, factor: FloatArray | float) -> Seconds:
        return Seconds(self.forward * factor, self.backward * factor)

    def in_chunks(self, layers: FloatArray) -> Seconds:
        """(n, C) seconds of chunks that hold ``layers``, (C,) or (n, C), of what takes these (n,)."""
        return Seconds(self.forward[:, None] * layers, self.backward[:, None] * layers)

    def again(self, repeated: BoolArray) -> Seconds:
        """With the forward pass run again in backward where ``repeated`` (n,)."""
        return Seconds(self.forward, self.backward + np.where(repeated, self.forward, 0.0))

    def at_least(self, seconds: FloatArray | float, beside: Seconds) -> Seconds:
        """Each pass no shorter than ``seconds`` together with ``beside``."""
        return Seconds(
            np.maximum(self.forward, seconds - beside.forward),
            np.maximum(self.backward, seconds - beside.backward),
        )
