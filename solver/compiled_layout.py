"""Compiled: layers over stages of different speed, the heaviest chunk as light as memory allows."""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel

BISECTIONS: Final = 45
ROUNDING: Final = 1e-12


@inner
def _chunk_s(a: int, b: int, c: int, before: IntArray, seconds: FloatArray) -> float:
    """Seconds of chunk ``c`` with the layers from ``a`` up to ``b``; ``before`` (L + 1, K): those before each.

    ``seconds`` (K + 1, C): of a layer of each kind, and of what a chunk holds beside layers.
    """
    kinds = before.shape[1]
    total = seconds[kinds, c]
    for k in range(kinds):
        total += (before[b, k] - before[a, k]) * seconds[k, c]
    return float(total)


@inner
def _carried(limit: float, before: IntArray, seconds: FloatArray, most: IntArray, ends: IntArray) -> bool:
    """Fill chunks from the first one on, none above ``limit``: the layers that the first ``c`` hold at most.

    ``ends`` (C + 1,) receives them; whether all chunks together hold all layers, with one layer in each.
    """
    layers, chunks = len(before) - 1, len(most)
    ends[0] = 0
    for c in range(chunks):
        a = ends[c]
        low, high = a, min(a + most[c], layers - (chunks - 1 - c))
        while low < high:
            middle = (low + high + 1) // 2
            if _chunk_s(a, middle, c, before, seconds) <= limit:
                low = middle
            else:
                high = middle - 1
        if low == a:
            return False
        ends[c + 1] = low
    return bool(ends[chunks] == layers)


@inner
def _fill(
    limit: float, before: IntArray, seconds: FloatArray, most: IntArray, ends: IntArray, counts: IntArray
) -> None:
    """Layers of each chunk, none above ``limit``, each from the last on with a share that suits its speed.

    ``ends``: what the chunks before each can carry (``_carried``).
    """
    left = len(before) - 1
    pace = seconds[0].copy()
    for k in range(1, before.shape[1]):
        pace = np.maximum(pace, seconds[k])
    for c in range(len(most) - 1, -1, -1):
        least = max(1, left - ends[c])
        take = min(most[c], left - c)
        while take > least and _chunk_s(left - take, left, c, before, seconds) > limit:
            take -= 1
        speed = 0.0
        for earlier in range(c + 1):
            speed += 1.0 / pace[earlier]
        share = int(np.ceil(left / pace[c] / speed - 1e-9))
        counts[c] = max(least, min(take, share))
        left -= counts[c]


@inner
def _heaviest(counts: IntArray, before: IntArray, seconds: FloatArray) -> float:
    heaviest, a = 0.0, 0
    for c in range(len(counts)):
        b = a + counts[c]
        heaviest = max(heaviest, _chunk_s(a, b, c, before, seconds))
        a = b
    return heaviest


@kernel
def _layouts(before: IntArray, seconds: FloatArray, most: IntArray, tolerance: float) -> IntArray:
    rows, chunks = most.shape
    layers = len(before) - 1
    result = np.zeros((rows, chunks), dtype=np.int64)
    ends = np.zeros(chunks + 1, dtype=np.int64)
    even = np.full(chunks, layers // chunks, dtype=np.int64)
    for i in range(rows):
        low, high = 0.0, seconds[i, :-1].max() * layers + seconds[i, -1].max()
        if not _carried(high * (1.0 + ROUNDING), before, seconds[i], most[i], ends):
            continue
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if _carried(middle, before, seconds[i], most[i], ends):
                high = middle
            else:
                low = middle
        high *= 1.0 + ROUNDING
        fits = layers % chunks == 0 and (even <= most[i]).all()
        if fits and _heaviest(even, before, seconds[i]) <= high * (1.0 + tolerance):
            result[i] = even
            continue
        _carried(high, before, seconds[i], most[i], ends)
        _fill(high, before, seconds[i], most[i], ends, result[i])
        if _heaviest(result[i], before, seconds[i]) > high:
            result[i] = ends[1:] - ends[:-1]
    return result


def lightest_layouts(before: IntArray, seconds: FloatArray, most: IntArray, *, tolerance: float) -> IntArray:
    """(n, C) layers of each chunk in model order, the heaviest chunk as light as can be; zeros where none exists.

    ``before`` (L + 1, K): layers of each kind before each layer; ``seconds`` (n, K + 1, C): of a layer of each kind
    on each chunk, and of what the chunk holds beside layers; ``most`` (n, C): the layers it may hold.  Every chunk
    gets a layer.  Exact where all layers are of one kind; else a chunk too slow for the very next layer may ask for
    a heavier limit than filling in another order would.  An even split is kept where its heaviest chunk is at most
    ``tolerance`` worse; otherwise chunks take shares that suit their speed within the limit, the odd layers late,
    because early ranks hold more micro-batches in memory.
    """
    found = _layouts(
        np.ascontiguousarray(before, dtype=np.int64),
        np.ascontiguousarray(seconds, dtype=np.float64),
        np.ascontiguousarray(most, dtype=np.int64),
        tolerance,
    )
    return np.asarray(found)
