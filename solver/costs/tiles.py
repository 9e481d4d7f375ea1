"""How the shape of a matrix product decides the share of its rate: tiles, waves and alignment.

Letters: m, n, k extents of a product (m x k) @ (k x n), S multiprocessors of the GPU.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray

TILES: Final = (
    (256.0, 128.0, 1.0),
    (128.0, 256.0, 1.0),
    (128.0, 128.0, 0.92),
    (128.0, 64.0, 0.78),
    (64.0, 128.0, 0.78),
    (64.0, 64.0, 0.6),
)
"""Tiles of the output that kernels compute, and the share of the largest tile's rate that each keeps.

Sizes from NVIDIA's Matrix Multiplication Background guide, section "Tile quantization"; shares estimated from its
figure for tiles of 256 x 128 to 64 x 64 (smaller tiles read more bytes per FLOP).
"""
_ROWS, _COLUMNS, _SHARES = (np.array(figures) for figures in zip(*TILES, strict=True))
_WORK: Final = _ROWS * _COLUMNS / _SHARES
SPLIT_EXTENT: Final = 1024.0
"""Least part of the contraction for which kernels split it over idle multiprocessors (split-K)."""
_VECTOR_ELEMENTS: Final = 8
"""16-bit elements of the 16-byte loads that feed tensor cores (ibidem, "Tensor Core requirements")."""


def quantisation(
    m: FloatArray,
    n: FloatArray,
    k: FloatArray,
    *,
    groups: FloatArray | float,
    multiprocessors: int,
    prologue: float = 0.0,
) -> FloatArray:
    """Work done over work asked for (at least 1) by ``groups`` products launched together.

    Every multiprocessor computes one tile at a time, so that ceil(tiles / S) S tiles are paid for ("tile" and "wave
    quantization", NVIDIA, ibidem).  The library takes the best tile for the shape; fewer tiles than
    multiprocessors are split along a long contraction.  Each tile, or part of one, starts with a ``prologue`` that
    is worth so many steps of the contraction.
    """
    each = (slice(None), *(None,) * np.broadcast(m, n, k, groups).ndim)
    tiles = np.ceil(m / _ROWS[each]) * np.ceil(n / _COLUMNS[each]) * groups
    waves = np.ceil(tiles / multiprocessors)
    if np.any(waves == 1.0) and np.any(k > SPLIT_EXTENT):
        splits = np.maximum(np.minimum(np.floor(multiprocessors / tiles), k / SPLIT_EXTENT), 1.0)
        best = (waves * _WORK[each] * (k / splits + prologue)).min(axis=0)
    else:
        best = (waves * _WORK[each]).min(axis=0) * (k + prologue)
    return np.asarray(best * multiprocessors / (groups * m * n * k))


def is_misaligned(*extents: FloatArray | float) -> FloatArray:
    """Whether a row of any of these widths (elements) starts off a 16-byte boundary, where tensor cores stall."""
    found = np.zeros((), dtype=np.bool_)
    for extent in extents:
        found = found | (np.mod(np.rint(extent), _VECTOR_ELEMENTS) > 0)
    return np.asarray(found)
