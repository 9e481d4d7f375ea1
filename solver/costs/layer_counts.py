"""Layers of each kind in the chunks of a pipeline; kinds are numbered as in ``Architecture.layer_kinds``."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cluster_models.model.architecture import Architecture
from solver.candidates import IntArray


def chunk_kinds(architecture: Architecture, counts: IntArray) -> IntArray:
    """(n, C, K): layers of each kind in chunks that hold ``counts`` (n, C) layers, chunks in model order.

    Multi-token prediction layers are decoder layers like the last one, on the last chunk.
    """
    before = layers_before(architecture)
    ends = np.concatenate([np.zeros((len(counts), 1), dtype=np.int64), counts.cumsum(axis=1)], axis=1)
    found = np.diff(before[ends], axis=1)
    found[:, -1, architecture.kind_numbers[-1]] += architecture.prediction_layers
    return np.asarray(found)


@lru_cache(maxsize=64)
def layers_before(architecture: Architecture) -> IntArray:
    """(L + 1, K): layers of each kind before each layer, and in all; not to be written to."""
    each = np.eye(len(architecture.layer_kinds), dtype=np.int64)[list(architecture.kind_numbers)]
    return np.concatenate([np.zeros_like(each[:1]), each.cumsum(axis=0)])


def all_layers(architecture: Architecture) -> IntArray:
    """(K,): layers of each kind in the whole model, multi-token prediction layers included."""
    return np.asarray(chunk_kinds(architecture, np.array([[architecture.layers]]))[0, 0])
