"""What maps of experts lose, at worst, where it is not known how engines choose copies or how fast links are.

Letters: L layers, S slots, K terms: each a choice of copies and a factor on the time between nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.dispatch import CopyChoice, LayerRates, Routing, layer_times
from solver.experts.layout import ExpertLayout

UNKNOWN_SPEEDS: Final = (1.0, 4.0 / 3.0, 1.0 / 2.0, 1.0 / 4.0, 1.0 / 8.0, 0.0)
"""Factors on the time between nodes that count where the speed is not known: from 50 to 400 Gb/s if the slowest is
50, 4 / 3 for dispatch in 16 bits, and nothing between nodes."""

_ROUNDS: Final = 60
_STEP: Final = 5.0
_ALLOWED: Final = 0.998
"""What the layers may take together under any term, beside the better of the references."""


@dataclass(frozen=True, slots=True)
class Terms:
    """``rates``, ``choices`` of copies that may be, and ``factors`` on the time between nodes that may be."""

    rates: LayerRates
    choices: tuple[CopyChoice, ...]
    factors: tuple[float, ...]

    @classmethod
    def of(cls, rates: LayerRates, choice: CopyChoice | None, *, speed_known: bool) -> Terms:
        """What may be where ``choice`` is ``None`` or the speed is not known."""
        return cls(
            rates, tuple(CopyChoice) if choice is None else (choice,), (1.0,) if speed_known else UNKNOWN_SPEEDS
        )

    @property
    def speed_known(self) -> bool:
        """Whether one speed counts."""
        return len(self.factors) == 1

    def index(self, choice: CopyChoice) -> int:
        """The place of ``choice`` at the speed of ``rates`` among all terms."""
        return self.choices.index(choice) * len(self.factors)


def times_by_term(slots: IntArray, routed: Routing, layout: ExpertLayout, terms: Terms) -> FloatArray:
    """(K, L) seconds of each layer for (L, S) ``slots``."""
    seconds = []
    for choice in terms.choices:
        times = layer_times(slots, routed, layout, terms.rates, choice)
        seconds += [times.compute_s + times.inside_s + factor * times.between_s for factor in terms.factors]
    return np.array(seconds)


def regrets(seconds: FloatArray, references: int | None = None) -> FloatArray:
    """(maps, L) of (maps, K, L) seconds: the most that a map takes beside the best of the first ``references``."""
    return np.asarray((seconds / seconds[:references].min(axis=0)).max(axis=1))


def least_regret(seconds: FloatArray, references: int) -> IntArray:
    """(L,) which of the maps each layer takes, of (maps, K, L) seconds.

    Each term counts by what all layers together take beside the best of the first ``references`` maps in all
    layers: the mean over terms is lowered, but first whatever exceeds ``_ALLOWED`` (prices on it by subgradients).
    No map by itself is better than what comes out.
    """
    beside = seconds / seconds[:references].sum(axis=2).min(axis=0)[:, None]
    terms, layers = seconds.shape[1], np.arange(seconds.shape[2])
    alone = [np.full(len(layers), each) for each in range(len(seconds))]
    candidates = [*alone, np.argmin(regrets(seconds, references), axis=0)]
    prices = np.zeros(terms)
    for _ in range(_ROUNDS):
        chosen = np.argmin(np.einsum("k,mkl->ml", prices + 1.0 / terms, beside), axis=0)
        candidates.append(chosen)
        lost = beside[chosen, :, layers].sum(axis=0)
        prices = np.maximum(prices + _STEP * (lost - _ALLOWED), 0.0)

    def worth(chosen: IntArray) -> tuple[float, float]:
        lost = beside[chosen, :, layers].sum(axis=0)
        return max(float(lost.max()), _ALLOWED), float(lost.mean())

    return np.asarray(min(candidates, key=worth))
