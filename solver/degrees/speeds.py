"""Stage layers that follow the speed and the memory of the GPUs under each stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cluster_models.model.architecture import Architecture
from solver.candidates import FloatArray, IntArray
from solver.compiled_layout import lightest_layouts
from solver.costs.layer_counts import chunk_kinds, layers_before
from solver.costs.step_costs import StepCosts
from solver.degrees.layout import EVEN_TOLERANCE

MemoryExcess = Callable[[IntArray, IntArray], FloatArray]
"""Bytes (m, P) beyond the limit of candidates ``rows`` (m,) with layers (m, C, K)."""


def probe_layers(architecture: Architecture, pipeline: int) -> IntArray:
    """(C, K) layers of chunks that tell apart what a layer of each kind and what the model's ends take."""
    kinds = len(architecture.layer_kinds)
    rounds = -(-(kinds + 2) // pipeline)
    layers = np.zeros((rounds * pipeline, kinds), dtype=np.int64)
    layers[1 : kinds + 1] = np.eye(kinds, dtype=np.int64)
    return layers


def chunk_seconds(
    probes: Sequence[StepCosts], stage_kind: IntArray, virtual: int, architecture: Architecture
) -> FloatArray:
    """(n, K + 1, C): forward and backward seconds of a layer of each kind on each chunk, and of its ends.

    ``probes``: by GPU kind, the costs of ``probe_layers``; ``stage_kind`` (n, P).  Costs are sums over layers, so
    that one probe tells those of any layout.
    """
    kinds = len(architecture.layer_kinds)
    by_kind = np.stack([probe.forward_s + probe.backward_s for probe in probes])
    chip = np.tile(stage_kind, (1, virtual))
    rows = np.arange(len(chip))[:, None]
    seconds = np.zeros((len(chip), kinds + 1, chip.shape[1]))
    for kind in range(kinds):
        seconds[:, kind] = by_kind[chip, rows, kind + 1]
    seconds[:, -1, 0] += by_kind[chip, rows, 0][:, 0]
    tail = seconds[:, architecture.kind_numbers[-1], -1]
    seconds[:, -1, -1] += by_kind[chip, rows, -1][:, -1] + architecture.prediction_layers * tail
    return seconds


def layouts_by_speed(
    seconds: FloatArray, virtual: int, architecture: Architecture, excess_bytes: MemoryExcess
) -> IntArray:
    """(n, C) layers of each chunk: the heaviest chunk as light as every rank's memory allows.

    ``seconds``: those of ``chunk_seconds``.  A candidate that no layout fits keeps the one that time alone asks
    for.
    """
    layers, chunks = architecture.layers, seconds.shape[2]
    before = layers_before(architecture)
    every = np.full((len(seconds), chunks), layers, dtype=np.int64)
    counts = lightest_layouts(before, seconds, every, tolerance=EVEN_TOLERANCE)
    full = np.flatnonzero(
        (excess_bytes(np.arange(len(seconds)), chunk_kinds(architecture, counts)) > 0).any(axis=1)
    )
    if len(full):
        most = np.tile(_most_layers(full, chunks // virtual, virtual, architecture, excess_bytes), (1, virtual))
        enough = most.sum(axis=1) >= layers
        full, most = full[enough], most[enough]
        fitting = lightest_layouts(before, seconds[full], most, tolerance=EVEN_TOLERANCE)
        found = fitting.any(axis=1)
        counts[full[found]] = fitting[found]
    return counts


def _most_layers(
    rows: IntArray, ranks: int, virtual: int, architecture: Architecture, excess_bytes: MemoryExcess
) -> IntArray:
    """(m, P): how many layers each virtual stage of a rank may hold, as many on each; all 0 where one is too many.

    By interpolation, since memory grows almost evenly with layers.  Where a model has several kinds of layers, of
    the kind with the most parameters.
    """
    shape = (len(rows), ranks)
    kinds = architecture.layer_kinds
    heaviest = max(range(len(kinds)), key=lambda kind: architecture.layer_parameters(kinds[kind]))

    def excess(picked: IntArray, counts: IntArray) -> FloatArray:
        layers = np.zeros((len(counts), ranks * virtual, len(kinds)), dtype=np.int64)
        layers[:, :, heaviest] = np.tile(counts, (1, virtual))
        layers[:, -1, architecture.kind_numbers[-1]] += architecture.prediction_layers
        return excess_bytes(rows[picked], layers)

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
