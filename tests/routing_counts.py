"""Counts for tests: skewed as real ones are, workloads more or less alike."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cluster_models.routing.counts import RoutedWorkload


def skewed(layers: int, experts: int, seed: int, likeness: float = 0.0) -> list[list[int]]:
    """Lognormal counts; ``likeness`` 1 gives those of every other seed, too."""
    shared, own = np.random.default_rng(99), np.random.default_rng(seed)
    logarithms = likeness * shared.standard_normal((layers, experts))
    logarithms += np.sqrt(1 - likeness**2) * own.standard_normal((layers, experts))
    counts: list[list[int]] = (np.round(1e4 * np.exp(0.9 * logarithms)) + 1).astype(int).tolist()
    return counts


def dump(rows: Sequence[Sequence[float]], dense: int = 0) -> bytes:
    """A file of counts as SGLang's recorder leaves them once saved as JSON: dense layers are rows of zeros."""
    experts = len(rows[0])
    return json.dumps({"logical_count": [[0] * experts] * dense + [list(row) for row in rows]}).encode()


def workload(name: str, layers: int = 3, experts: int = 16, seed: int = 0, likeness: float = 0.0) -> RoutedWorkload:
    """One workload of skewed counts."""
    loads = np.array(skewed(layers, experts, seed, likeness), dtype=np.float64)
    return RoutedWorkload(name, tuple(range(layers)), loads)


def sent(files: Mapping[str, bytes]) -> list[tuple[str, tuple[str, io.BytesIO, str]]]:
    """Files as parts of a form."""
    return [("files", (name, io.BytesIO(data), "application/octet-stream")) for name, data in files.items()]


def traced(name: str, seed: int, *, layers: int = 4, experts: int = 16) -> dict[str, Any]:
    """A workload as JSON carries it, with transitions: most tokens go on inside hidden groups of four experts."""
    generator = np.random.default_rng(seed)
    groups = np.array([np.random.default_rng(7 + layer).permutation(experts) // 4 for layer in range(layers)])
    likely = 1.0 + 8.0 * (groups[:-1, :, None] == groups[1:, None, :])
    tables = generator.poisson(10.0 * likely * generator.random((layers - 1, experts, 1)))
    loads = np.concatenate([tables.sum(axis=2), tables[-1:].sum(axis=1)])
    return {
        "name": name,
        "logical_count": (loads + 1).tolist(),
        "transitions": [{"layer": layer, "counts": table.tolist()} for layer, table in enumerate(tables)],
    }


def in_full(*names: str, layers: int = 3, experts: int = 16) -> list[dict[str, Any]]:
    """Workloads as JSON carries them, no two alike."""
    return [
        {"name": name, "logical_count": skewed(layers, experts, seed)} for seed, name in enumerate(names, start=1)
    ]
