"""Layers of each pipeline stage: even where stages are alike, uneven where the ends weigh more."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cache, lru_cache
from itertools import accumulate, chain, pairwise
from typing import Final

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.flops import head_forward_flops, layer_forward_flops
from cluster_models.training.frameworks import Framework
from cluster_models.training.layer_splits import LayerSplit, can_launch, simple_splits, split_of, takes_any_split
from cluster_models.training.schedules import PipelineSchedule, in_model_order, model_columns
from solver.candidates import FloatArray, IntArray
from solver.costs.layer_counts import chunk_kinds

EVEN_TOLERANCE: Final = 0.005
BEHIND_HEAD: Final = 2
"""nanotron's cast to FP32 and loss, each of which may stand on a stage of its own behind the output head."""
Layout = tuple[tuple[int, ...], ...]
"""``layout[v][s]``: decoder layers of virtual stage ``v`` on pipeline rank ``s`` (as in ``Configuration``)."""


@lru_cache(maxsize=64)
def layer_flops(architecture: Architecture, sequence_length: int) -> tuple[FloatArray, float]:
    """Forward FLOP per token of every decoder layer (layers,), and of what follows the last one.

    That is the output head, and of every multi-token prediction layer a decoder layer, the projection of hidden
    state and next embedding to one width, and the head again.  Not to be written to.
    """
    kinds = architecture.layer_kinds
    flops = np.array([layer_forward_flops(architecture, sequence_length, kind).total for kind in kinds])
    weights = flops[list(architecture.kind_numbers)]
    head = head_forward_flops(architecture)
    projection = 2.0 * architecture.prediction_projection_parameters()
    after = head + architecture.prediction_layers * (float(weights[-1]) + projection + head)
    return weights, after


@lru_cache(maxsize=4096)
def balanced_layout(architecture: Architecture, sequence_length: int, pipeline: int, virtual: int) -> Layout:
    """The contiguous split over ``pipeline * virtual`` chunks whose heaviest chunk is lightest.

    Weights are forward FLOP, the output head and multi-token prediction counted on the last chunk.  Among equals
    the late chunks take the odd layers, because early ranks hold more micro-batches in memory.
    An even split, which needs no layout flags, is kept where its heaviest chunk is at most ``EVEN_TOLERANCE``
    worse.  Every chunk has a layer.
    """
    chunks = pipeline * virtual
    assert chunks <= architecture.layers
    weights, head = layer_flops(architecture, sequence_length)
    ends = [0.0, *np.cumsum(weights).tolist()]
    loads = _chunk_loads(tuple(ends), head)
    least = bisect_left(loads, True, key=lambda load: _split(ends, head, chunks, load) is not None)
    high = loads[least]
    counts = _split(ends, head, chunks, high)
    assert counts is not None
    if architecture.layers % chunks == 0:
        even = np.diff(ends[:: architecture.layers // chunks])
        even[-1] += head
        if even.max() <= high * (1 + EVEN_TOLERANCE):
            counts = [architecture.layers // chunks] * chunks
    return tuple(tuple(counts[v * pipeline : (v + 1) * pipeline]) for v in range(virtual))


@lru_cache(maxsize=4096)
def launchable_layout(
    architecture: Architecture, sequence_length: int, pipeline: int, virtual: int, framework: Framework
) -> Layout | None:
    """The lightest split that the framework's launcher takes or makes itself; ``None`` where there is none.

    Among splits whose heaviest chunks weigh the same, the one with the fewest layers in early chunks.
    """
    if framework.fills_stages:
        filled = filled_stages(architecture, pipeline)
        return None if filled is None or virtual > 1 else (filled,)
    if takes_any_split(framework):
        return balanced_layout(architecture, sequence_length, pipeline, virtual)
    weights, head = layer_flops(architecture, sequence_length)
    ends, lightest, found = [0.0, *np.cumsum(weights).tolist()], float(weights.min()), []
    for rows in simple_splits(architecture.layers, pipeline, virtual):
        if can_launch(framework, rows):
            cuts = accumulate(chain.from_iterable(rows), initial=0)
            loads = [ends[last] - ends[first] for first, last in pairwise(cuts)]
            loads[-1] += head
            tolerance = EVEN_TOLERANCE if split_of(rows) is LayerSplit.EVEN else 0.0
            found.append((round(max(loads) / (1 + tolerance) / lightest, 9), rows))
    return min(found)[1] if found else None


@cache
def launchable(architecture: Architecture, framework: Framework, pipeline: int, virtual: int) -> bool:
    """Whether the framework's launcher takes, or makes, some split of the layers among so many stages."""
    if framework.fills_stages:
        return virtual == 1 and filled_stages(architecture, pipeline) is not None
    if takes_any_split(framework):
        return True
    return any(can_launch(framework, rows) for rows in simple_splits(architecture.layers, pipeline, virtual))


def filled_stages(architecture: Architecture, pipeline: int) -> tuple[int, ...] | None:
    """Layers of each stage as nanotron fills them: a stage is full once the running cost exceeds its share.

    Costs are parameters of matrices, of the output head too, which may leave the last stages without layers
    (``build_model`` and ``get_block_compute_costs``).  ``None`` where stages are left without any module, which the
    framework refuses (``check_model_has_grad``).
    """
    layer = architecture.attention_parameters() + architecture.dense_mlp_parameters()
    share = (layer * architecture.layers + architecture.vocabulary * architecture.hidden) / pipeline
    counts, stage = [0] * pipeline, 0
    for before in range(architecture.layers):
        counts[stage] += 1
        stage += layer * (before + 1) > share * (stage + 1)
    return None if stage + BEHIND_HEAD < pipeline - 1 else tuple(counts)


@lru_cache(maxsize=64)
def _chunk_loads(ends: tuple[float, ...], head: float) -> list[float]:
    """Every weight that a chunk of consecutive layers can have, increasing; the lightest limit is one of them."""
    bounds = np.array(ends)
    inner = (bounds[None, :] - bounds[:, None])[np.triu_indices(len(bounds), 1)]
    return np.unique(np.concatenate([inner, bounds[-1] - bounds[:-1] + head])).tolist()  # type: ignore[no-any-return]


def _split(ends: list[float], head: float, chunks: int, limit: float) -> list[int] | None:
    """Layers per chunk with no chunk above ``limit``, or ``None``; fills from the last chunk backwards.

    ``ends`` (layers + 1,) is the running sum of the layers' weights.  A chunk takes its fair share of what is
    left, and more only where the chunks before it could not carry the rest.
    """
    limit *= 1 + 1e-12
    carried = [0]
    for _ in range(chunks - 1):
        carried.append(bisect_right(ends, ends[carried[-1]] + limit) - 1)
    counts: list[int] = []
    remaining = len(ends) - 1
    for chunk in range(chunks - 1, -1, -1):
        extra = head if chunk == chunks - 1 else 0.0
        fits = remaining - bisect_left(ends, ends[remaining] + extra - limit, hi=remaining + 1)
        most, least = min(fits, remaining - chunk), max(1, remaining - carried[chunk])
        if most < least:
            return None
        take = max(least, min(most, -(-remaining // (chunk + 1))))
        counts.append(take)
        remaining -= take
    return counts[::-1]


def chunk_layers(architecture: Architecture, layout: Layout, schedule: PipelineSchedule) -> IntArray:
    """(C, K): layers of each kind (``Architecture.layer_kinds``) in each chunk, chunks in the order of ``layout``.

    Multi-token prediction layers are decoder layers like the last one, on the last chunk.
    """
    counts = np.array([in_model_order(schedule, layout)], dtype=np.int64)
    columns = np.array(model_columns(schedule, len(layout[0]), len(layout)))
    return np.asarray(chunk_kinds(architecture, counts)[0][np.argsort(columns)])
