"""Seconds of both passes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.candidates import FloatArray


@dataclass(frozen=True, slots=True)
class Seconds:
    """Forward and backward seconds, (n,) or (n, C); backward without recomputation unless stated.

    ``weight``: what of the backward pass computes gradients of weights; ``None`` where no schedule runs it apart.
    """

    forward: FloatArray
    backward: FloatArray
    weight: FloatArray | None = None

    def __add__(self, other: Seconds) -> Seconds:
        weight = self.weight if other.weight is None else other.weight
        if self.weight is not None and other.weight is not None:
            weight = self.weight + other.weight
        return Seconds(self.forward + other.forward, self.backward + other.backward, weight)

    def __mul__(self, factor: FloatArray | float) -> Seconds:
        weight = None if self.weight is None else self.weight * factor
        return Seconds(self.forward * factor, self.backward * factor, weight)

    def in_chunks(self, layers: FloatArray) -> Seconds:
        """(n, C) seconds of chunks that hold ``layers``, (C,) or (n, C), of what takes these (n,)."""
        weight = None if self.weight is None else self.weight[:, None] * layers
        return Seconds(self.forward[:, None] * layers, self.backward[:, None] * layers, weight)

    def of_step(self, passes: float, *, backward: bool) -> Seconds:
        """With ``passes`` forward passes, of which the ``backward`` pass follows the last if there is one."""
        return Seconds(self.forward * passes, self.backward if backward else 0.0 * self.backward, self.weight)

    def then(self, seconds: FloatArray) -> Seconds:
        """With ``seconds`` of recomputation in backward, in each of its parts where they run apart.

        PyTorch's checkpoints compute again for each call of the autograd engine (``_CheckpointFrame``).
        """
        if self.weight is None:
            return Seconds(self.forward, self.backward + seconds)
        return Seconds(self.forward, self.backward + 2.0 * seconds, self.weight + seconds)

    def at_least(self, seconds: FloatArray | float, beside: Seconds) -> Seconds:
        """Each pass no shorter than ``seconds`` together with ``beside``."""
        return Seconds(
            np.maximum(self.forward, seconds - beside.forward),
            np.maximum(self.backward, seconds - beside.backward),
            self.weight,
        )
