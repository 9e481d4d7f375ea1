"""Routing counts from files, of every kind that ``app.routing`` knows; and generated ones where there are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from app.routing.reading import loads_of
from cluster_models.routing.counts import RoutedWorkload


def read_workloads(path: Path) -> list[RoutedWorkload]:
    """The workloads of one file, named after it; raises ``InvalidInput``."""
    return list(loads_of(path))


def generated(name: str, layers: int, experts: int, seed: int, kinship: float = 0.0) -> RoutedWorkload:
    """Counts that resemble DeepSeek-R1's: lognormal with a spread that differs by layer.

    ``kinship``: how much they agree with those of ``seed`` 0 (as prefill of other lengths does), from 0 to 1.
    """
    shared, own = np.random.default_rng(0), np.random.default_rng(seed)
    spread = shared.uniform(0.5, 1.0, size=(layers, 1))
    logarithms = kinship * shared.standard_normal((layers, experts))
    logarithms += np.sqrt(1 - kinship**2) * own.standard_normal((layers, experts))
    return RoutedWorkload(name, tuple(range(layers)), np.round(1e5 * np.exp(spread * logarithms)) + 1)
