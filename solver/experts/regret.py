"""Regret of maps of experts where choice of copies, speed of links and pace of nodes are not known.

Letters: L layers, S slots, K terms: router, choice of copies, pace and factor on the time between nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.dispatch import (
    LayerRates,
    LayerTimes,
    RouterRule,
    Routing,
    routing,
    times_by_choice,
)
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice

UNKNOWN_SPEEDS: Final = (1.0, 4.0 / 3.0, 1.0 / 2.0, 1.0 / 4.0, 1.0 / 8.0, 0.0)
"""Factors on the time between nodes that count where the speed is not known: from 50 to 400 Gb/s if the slowest is
50, 4 / 3 for dispatch in 16 bits, and nothing between nodes."""

_ROUNDS: Final = 100
_STEP: Final = 10.0
_SWEEPS, _SWEPT = 3, 20
"""How often layers change their maps one by one, and from how many of the best mixtures."""
_ALLOWED: Final = 0.9995
"""Time that the layers should take together at most under any term, beside the better of the references."""
_DEAREST: Final = 30.0
"""Price of what is beyond that, beside the mean over terms: not endless, for terms may contradict each other."""


@dataclass(frozen=True, slots=True)
class Terms:
    """``rates``, ``choices`` of copies that may be, and ``factors`` on the time between nodes that may be.

    Where the speed is not known, the mean of nodes counts as well as the busiest, and a router without groups.
    """

    rates: LayerRates
    choices: tuple[CopyChoice, ...]
    factors: tuple[float, ...]

    @classmethod
    def of(cls, rates: LayerRates, choice: CopyChoice | None, *, speed_known: bool) -> Terms:
        """Terms that may hold where ``choice`` is ``None`` or the speed is not known."""
        return cls(
            rates, tuple(CopyChoice) if choice is None else (choice,), (1.0,) if speed_known else UNKNOWN_SPEEDS
        )

    @property
    def speed_known(self) -> bool:
        """Whether one speed counts."""
        return len(self.factors) == 1

    @property
    def paces(self) -> tuple[bool, ...]:
        """Whether the mean of nodes sets the pace, in place of the busiest, for each pace that may be."""
        return (False,) if self.speed_known else (False, True)

    def index(self, choice: CopyChoice) -> int:
        """The place of ``choice`` at the speed of ``rates``, paced by the busiest node, among all terms."""
        return self.choices.index(choice) * len(self.factors) * len(self.paces)

    def routings(self, routed: Routing) -> list[Routing]:
        """The routers that count: what is known of one, and where nothing else is either, one without groups."""
        if self.speed_known or routed.rule.groups == 1:
            return [routed]
        return [routed, routing(routed.shares, RouterRule(routed.rule.active))]

    def seconds(self, times: LayerTimes) -> list[FloatArray]:
        """(L,) seconds of layers for each pace and factor."""
        here = times.compute_s + times.inside_s
        mean_s = self.rates.tokens * self.rates.copy_bytes / self.rates.between_bytes_per_s * times.crossing
        paced = [mean_s if by_mean else times.between_s for by_mean in self.paces]
        return [here + factor * between_s for between_s in paced for factor in self.factors]


def times_by_term(slots: IntArray, routings: list[Routing], layout: ExpertLayout, terms: Terms) -> FloatArray:
    """(K, L) seconds of each layer for (L, S) ``slots``."""
    found = [
        times for routed in routings for times in times_by_choice(slots, routed, layout, terms.rates, terms.choices)
    ]
    return np.array([seconds for times in found for seconds in terms.seconds(times)])


def regrets(seconds: FloatArray, references: int | None = None) -> FloatArray:
    """(maps, L) of (maps, K, L) seconds: the most that a map takes beside the best of the first ``references``."""
    return np.asarray((seconds / seconds[:references].min(axis=0)).max(axis=1))


def lost(beside: FloatArray) -> FloatArray:
    """Loss of (.., K) times beside the references: their mean, and at its price the excess over ``_ALLOWED``."""
    return np.asarray(_DEAREST * np.maximum(beside - _ALLOWED, 0.0).sum(axis=-1) + beside.mean(axis=-1))


def least_regret(seconds: FloatArray, references: int) -> IntArray:
    """(L,) which of the maps each layer takes, of (maps, K, L) seconds.

    Each term counts by what all layers together take beside the best of the first ``references`` maps in all
    layers: the mean over terms is lowered, and at a high price whatever exceeds ``_ALLOWED``.  Prices of terms are
    found by subgradients, and layers then change their maps one by one.  No map by itself is better than what
    comes out.
    """
    beside = seconds / seconds[:references].sum(axis=2).min(axis=0)[:, None]
    terms, layers = seconds.shape[1], np.arange(seconds.shape[2])
    alone = [np.full(len(layers), each) for each in range(len(seconds))]
    candidates = [*alone, np.argmin(regrets(seconds, references), axis=0)]
    prices = np.zeros(terms)
    for step in range(_ROUNDS):
        chosen = np.argmin(np.einsum("k,mkl->ml", prices + 1.0 / terms, beside), axis=0)
        candidates.append(chosen)
        beyond = beside[chosen, :, layers].sum(axis=0) - _ALLOWED
        prices = np.clip(prices + _STEP / (1.0 + 0.1 * step) * beyond, 0.0, _DEAREST)
    different = np.unique(candidates, axis=0)
    losses = lost(beside[different, :, layers].sum(axis=1))
    swept = [_swept(beside, different[each]) for each in np.argsort(losses, kind="stable")[:_SWEPT]]
    return min(swept, key=lambda each: float(lost(beside[each, :, layers].sum(axis=0))))


def _swept(beside: FloatArray, chosen: IntArray) -> IntArray:
    """The choice after layers took, one by one, the map that lowers what is lost."""
    together = beside[chosen, :, np.arange(len(chosen))].sum(axis=0)
    for layer in list(range(len(chosen))) * _SWEEPS:
        tried = together - beside[chosen[layer], :, layer] + beside[:, :, layer]
        least = lost(tried)
        best = int(np.argmin(least))
        if least[best] < least[chosen[layer]]:
            chosen[layer], together = best, tried[best]
    return chosen
