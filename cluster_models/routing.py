"""How a router spread tokens over experts: what was counted while a workload ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cluster_models.errors import InvalidInput

Counts = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class RoutedWorkload:
    """Counts of one workload ("prefill", "decode of chats"); all counts are of (token, expert) selections.

    ``layers``: the decoder layers that were counted, from 0, increasing; dense layers are left out.
    ``loads`` (layers, experts): how often each expert was selected.
    ``transitions[i]`` (experts, experts): of ``layers[i]`` and ``layers[i + 1]``, how often a token selected the
    row in the first and the column in the second.
    ``coactivation[i]`` (experts, experts): in ``layers[i]``, how often a token selected both; symmetric, the
    diagonal counts for nothing.  ``tokens``: how many tokens were counted, where known.

    Raises ``InvalidInput`` for other shapes, for counts that are negative or no numbers, and for a layer without
    any count.
    """

    name: str
    layers: tuple[int, ...]
    loads: Counts
    transitions: Mapping[int, Counts] = field(default_factory=dict)
    coactivation: Mapping[int, Counts] = field(default_factory=dict)
    tokens: float | None = None

    def __post_init__(self) -> None:
        if not self.layers or list(self.layers) != sorted(set(self.layers)) or self.layers[0] < 0:
            raise InvalidInput("routing.layers", self.layers, "must be layer numbers, increasing")
        if self.loads.ndim != 2 or len(self.loads) != len(self.layers) or not self.experts:
            problem = f"must be {len(self.layers)} rows of one count per expert"
            raise InvalidInput("routing.loads", self.loads.shape, problem)
        _check_counts("routing.loads", self.loads)
        empty = [layer for layer, total in zip(self.layers, self.loads.sum(axis=1), strict=True) if total <= 0]
        if empty:
            raise InvalidInput(
                "routing.loads", empty[0], "no token of that layer was counted", "leave the layer out"
            )
        for what, tables, last in (
            ("transitions", self.transitions, len(self.layers) - 1),
            ("coactivation", self.coactivation, len(self.layers)),
        ):
            for index, table in tables.items():
                name = f"routing.{what}[{index}]"
                if not 0 <= index < last or table.shape != (self.experts, self.experts):
                    problem = f"must be of one of {last} rows and have {self.experts} x {self.experts} counts"
                    raise InvalidInput(name, table.shape, problem)
                _check_counts(name, table)

    @property
    def experts(self) -> int:
        """Experts of a layer."""
        return int(self.loads.shape[1])

    def shares(self) -> Counts:
        """(layers, experts): the share of each layer's selections that an expert gets; rows sum to 1."""
        return np.asarray(self.loads / self.loads.sum(axis=1, keepdims=True))


def _check_counts(name: str, counts: Counts) -> None:
    if not np.isfinite(counts).all() or (counts < 0).any():
        raise InvalidInput(name, "", "counts must be numbers from 0 on")
    counts.setflags(write=False)
