"""Findings of a serving search: the plan placed and settled, and the bound."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

from cluster_models.serving.goal import ServingObjective
from cluster_models.training.plan import StopReason
from solver.serving.planning.offers import Priced
from solver.serving.planning.program import Offer
from solver.serving.planning.settle import Settled
from solver.serving.planning.zones import Zone

MOST_SHOWN: Final = 3
"""Kinds of groups that a description names."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The best plan that the search saw, one entry of ``settled`` for each model, and the bound.

    ``settled`` is empty where no choice meets limits and load.  ``zones``, ``prices`` (by model) and ``offers`` are
    those of the best links.
    """

    settled: tuple[Settled, ...]
    objective: float
    bound: float
    stopped_by: StopReason
    zones: tuple[Zone, ...]
    prices: tuple[Priced, ...]
    offers: tuple[Offer, ...]

    @property
    def gap(self) -> float:
        """Distance of the bound as a share of the objective."""
        return gap_of(self.objective, self.bound)

    @property
    def description(self) -> str:
        """Its groups, the most frequent first: "4 x tp8, 2 x (3 x tp2 -> 1 x tp8)"."""
        counts = Counter(placed.group.configuration for settled in self.settled for placed in settled.groups)
        shown = [
            f"{number} x ({configuration.prefill} -> {configuration.decode})"
            if configuration.is_split
            else f"{number} x {configuration.decode.worker}"
            for configuration, number in counts.most_common(MOST_SHOWN)
        ]
        return ", ".join(shown + ["..."] * (len(counts) > MOST_SHOWN))


def gap_of(objective: float, bound: float) -> float:
    """Distance of the bound as a share of the objective."""
    return abs(bound - objective) / max(abs(objective), 1e-12)


def better_of(new: Found, old: Found | None, objective: ServingObjective) -> Found:
    """The better plan of two that one search saw, with the prices of ``new`` and the tighter bound."""
    if old is None:
        return new
    sign = 1.0 if objective.is_maximum else -1.0
    best = new if new.settled and sign * new.objective >= sign * old.objective else old
    bound = max(sign * best.objective, min(sign * new.bound, sign * old.bound))
    return replace(new, settled=best.settled, objective=best.objective, bound=sign * bound)


def finite(value: float) -> float | None:
    """``value`` unless nothing is known of it."""
    return value if math.isfinite(value) else None
