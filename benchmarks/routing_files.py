"""Routing counts from files: one workload each, or several by domain; and generated ones where there are none.

Taken are ``{"logical_count": [[..]]}`` (SGLang's expert distribution), plain lists of lists, ``expert_popularity``
(Fiddler) and ``domains`` with counts by layer (AllenAI's OLMoE analysis).  Rows without any count are dense layers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.routing import RoutedWorkload

KEYS: Final = ("logical_count", "expert_popularity", "loads", "counts")


def read_workloads(path: Path) -> list[RoutedWorkload]:
    """The workloads of one file, named after it.  Raises ``InvalidInput``."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise InvalidInput("loads", str(path), f"cannot be read as JSON: {problem}") from problem
    if isinstance(document, dict) and isinstance(document.get("domains"), dict):
        return _by_domain(path, document)
    rows = document
    if isinstance(document, dict):
        key = next((key for key in KEYS if key in document), None)
        if key is None:
            raise InvalidInput("loads", str(path), f"has none of the keys {', '.join(KEYS)}")
        rows = document[key]
    return [workload_of(path.stem, rows)]


def workload_of(name: str, rows: Any, layers: Sequence[int] | None = None) -> RoutedWorkload:
    """The workload with counts (layers, experts); rows of zeros alone are left out."""
    try:
        counts = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise InvalidInput("loads", name, "must be rows of counts, equally many in each") from problem
    if counts.ndim == 3 and len(counts) == 1:
        counts = counts[0]
    if counts.ndim != 2 or not counts.any():
        raise InvalidInput("loads", counts.shape, "must be rows of counts, one for each layer, not all 0")
    sparse = np.flatnonzero(counts.any(axis=1))
    numbers = range(len(counts)) if layers is None else layers
    return RoutedWorkload(name, tuple(int(numbers[row]) for row in sparse), counts[sparse])


def generated(name: str, layers: int, experts: int, seed: int, kinship: float = 0.0) -> RoutedWorkload:
    """Counts that resemble DeepSeek-R1's: lognormal with a spread that differs by layer.

    ``kinship``: how much they agree with those of ``seed`` 0 (as prefill of other lengths does), from 0 to 1.
    """
    shared, own = np.random.default_rng(0), np.random.default_rng(seed)
    spread = shared.uniform(0.5, 1.0, size=(layers, 1))
    logarithms = kinship * shared.standard_normal((layers, experts))
    logarithms += np.sqrt(1 - kinship**2) * own.standard_normal((layers, experts))
    return RoutedWorkload(name, tuple(range(layers)), np.round(1e5 * np.exp(spread * logarithms)) + 1)


def _by_domain(path: Path, document: dict[str, Any]) -> list[RoutedWorkload]:
    """One workload for each domain; ``layers_counted`` numbers the rows."""
    layers = document.get("layers_counted")
    return [
        workload_of(f"{path.stem}:{domain}", content["expert_counts"], layers)
        for domain, content in document["domains"].items()
    ]
