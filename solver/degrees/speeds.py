"""Stage layers that follow the speed and the memory of the GPUs under each stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cluster_models.model.architecture import Architecture
from solver.candidates import FloatArray, IntArray
from solver.compiled_layout import lightest_layouts
from solver.costs.step_costs import StepCosts
from solver.degrees.layout import EVEN_TOLERANCE

PROBE_ROUNDS = 2
"""Chunks of a probe are this many times the pipeline ranks: two at the ends, one with a layer of each type."""
MemoryExcess = Callable[[IntArray, IntArray], FloatArray]
"""Bytes (m, P) beyond the limit of candidates ``rows`` (m,) with layers (m, C, 2)."""


def probe_layers(pipeline: int) -> IntArray:
    """(C, 2) layers of chunks that tell apart what a layer of each type and what the model's ends take."""
    layers = np.zeros((PROBE_ROUNDS * pipeline, 2), dtype=np.int64)
    layers[1, 0] = layers[2, 1] = 1
    return layers


def chunk_seconds(
    probes: Sequence[StepCosts], stage_kind: IntArray, virtual: int, architecture: Architecture
) -> FloatArray:
    """(n, 3, C): forward and backward seconds of a dense layer on each chunk, of a sparse one, and of its ends.

    ``probes``: by GPU kind, the costs of ``probe_layers``; ``stage_kind`` (n, P).  Costs are sums over layers, so
    that one probe tells those of any layout.
    """
    by_kind = np.stack([_unit_seconds(probe) for probe in probes])
    kinds = np.tile(stage_kind, (1, virtual))
    rows = np.arange(len(kinds))[:, None]
    dense, sparse, first, last = (by_kind[kinds, rows, part] for part in range(4))
    seconds = np.stack([dense, sparse, np.zeros_like(dense)], axis=1)
    seconds[:, 2, 0] += first[:, 0]
    tail = (dense, sparse)[int(architecture.sparse_pattern[-1])][:, -1]
    seconds[:, 2, -1] += last[:, -1] + architecture.prediction_layers * tail
    return seconds


def _unit_seconds(probe: StepCosts) -> FloatArray:
    """(n, 4): seconds of a dense layer, a sparse layer, what comes before the first and after the last layer."""
    seconds = probe.forward_s + probe.backward_s
    return seconds[:, [1, 2, 0, -1]]


def layouts_by_speed(
    seconds: FloatArray, virtual: int, architecture: Architecture, excess_bytes: MemoryExcess
) -> IntArray:
    """(n, C) layers of each chunk: the heaviest chunk as light as every rank's memory allows.

    ``seconds``: those of ``chunk_seconds``.  A candidate that no layout fits keeps the one that time alone asks
    for.
    """
    layers, chunks = architecture.layers, seconds.shape[2]
    dense = np.concatenate([[0], np.cumsum(~np.array(architecture.sparse_pattern))])
    every = np.full((len(seconds), chunks), layers, dtype=np.int64)
    counts = lightest_layouts(dense, seconds, every, tolerance=EVEN_TOLERANCE)
    full = np.flatnonzero(
        (excess_bytes(np.arange(len(seconds)), chunk_types(architecture, counts)) > 0).any(axis=1)
    )
    if len(full):
        most = np.tile(_most_layers(full, chunks // virtual, virtual, architecture, excess_bytes), (1, virtual))
        enough = most.sum(axis=1) >= layers
        full, most = full[enough], most[enough]
        fitting = lightest_layouts(dense, seconds[full], most, tolerance=EVEN_TOLERANCE)
        found = fitting.any(axis=1)
        counts[full[found]] = fitting[found]
    return counts


def chunk_types(architecture: Architecture, counts: IntArray) -> IntArray:
    """(n, C, 2): dense and sparse layers of each chunk, multi-token prediction layers on the last one."""
    sparse = np.concatenate([[0], np.cumsum(np.array(architecture.sparse_pattern, dtype=np.int64))])
    ends = np.concatenate([np.zeros((len(counts), 1), dtype=np.int64), counts.cumsum(axis=1)], axis=1)
    held = np.diff(sparse[ends], axis=1)
    types = np.stack([counts - held, held], axis=2)
    types[:, -1, int(architecture.sparse_pattern[-1])] += architecture.prediction_layers
    return types


def _most_layers(
    rows: IntArray, ranks: int, virtual: int, architecture: Architecture, excess_bytes: MemoryExcess
) -> IntArray:
    """(m, P): how many layers each virtual stage of a rank may hold, as many on each; all 0 where one is too many.

    By interpolation, since memory grows almost evenly with layers.  Where a model has both types of layers, of the
    sparse type, which weighs more.
    """
    shape = (len(rows), ranks)

    def excess(picked: IntArray, counts: IntArray) -> FloatArray:
        types = np.zeros((len(counts), ranks * virtual, 2), dtype=np.int64)
        types[:, :, int(any(architecture.sparse_pattern))] = np.tile(counts, (1, virtual))
        types[:, -1, int(architecture.sparse_pattern[-1])] += architecture.prediction_layers
        return excess_bytes(rows[picked], types)

    low, high = np.ones(shape, dtype=np.int64), np.full(shape, architecture.layers + 1, dtype=np.int64)
    below, above = excess(np.arange(len(rows)), low), excess(np.arange(len(rows)), high - 1)
    low[(below > 0).any(axis=1)] = 0
    high = np.where(above > 0, high - 1, high)
    low = np.where((above <= 0) & (low > 0), high - 1, low)
    while len(open_rows := np.flatnonzero(((high - low > 1) & (low > 0)).any(axis=1))):
        a, b, under, over = low[open_rows], high[open_rows], below[open_rows], above[open_rows]
        share = -under / np.maximum(over - under, 1.0)
        middle = np.clip(a + (share * (b - a)).astype(np.int64), np.minimum(a + 1, b - 1), b - 1)
        found = excess(open_rows, np.maximum(middle, 1))
        fits, open_ = found <= 0, b - a > 1
        low[open_rows] = np.where(fits & open_, middle, a)
        below[open_rows] = np.where(fits & open_, found, under)
        high[open_rows] = np.where(~fits & open_, middle, b)
        above[open_rows] = np.where(~fits & open_, found, over)
    return low
