"""Comparison of configurations by how simple and usual they are (docs/choice.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cluster_models.training.context_exchange import RING
from cluster_models.training.selection import Simplicity
from solver.candidates import MODULE_BITS, CandidateBatch, FloatArray, IntArray
from solver.costs.confidence import Family
from solver.degrees.layout import Layout
from solver.degrees.memory_mixes import PLAIN
from solver.degrees.priced import PricedCandidates
from solver.placement.fabric import Fabric

PARALLELISMS: Final = ("tensor", "pipeline", "context", "expert", "expert_tensor")
"""Kinds of parallelism beside data parallelism, which changes nothing about a model."""
POWERS: Final = ("tensor", "pipeline", "context", "expert", "micro_batch")
"""Sizes that are usually powers of two; data parallel ranks follow from them and the GPUs."""
MEASURED: Final = ("tensor", "pipeline", "context", "expert", "micro_batch")
"""Sizes whose measured range is known, by their names in ``CandidateBatch`` and in ``Family.extents``."""


def complications(
    candidates: PricedCandidates, fabrics: Sequence[Fabric], rows: IntArray, family: Family
) -> IntArray:
    """(n, criteria) what makes each of ``rows`` less simple, in the order of ``Simplicity``.

    ``family`` knows what sizes were measured.
    """
    batch = candidates.batch.take(rows)
    stagings = [candidates.staging_of(row) for row in rows.tolist()]
    nodes = np.array([fabric.gpus_per_node for fabric in fabrics])[candidates.fabric[rows]]
    columns = {
        Simplicity.GPU_KINDS: np.array([len({*staging.kinds}) for staging in stagings]),
        Simplicity.PARALLELISM: sum(getattr(batch, name) > 1 for name in PARALLELISMS),
        Simplicity.TENSOR_IN_NODE: batch.tensor > nodes,
        Simplicity.EVEN_LAYERS: np.array([_is_uneven(staging.layout) for staging in stagings]),
        Simplicity.POWERS_OF_TWO: sum(_is_odd(getattr(batch, name)) for name in POWERS),
        Simplicity.VIRTUAL_STAGES: batch.virtual_pipeline,
        Simplicity.MEMORY_OPTIONS: _memory_options(batch),
        Simplicity.MEASURED_SIZES: _unmeasured(batch, family),
    }
    return np.stack([np.asarray(columns[each], dtype=np.int64) for each in Simplicity], axis=1)


def simplest_first(keys: IntArray, values: FloatArray) -> IntArray:
    """Rows of ``keys`` (n, criteria) by their first difference, among equals the least of ``values`` (n,) first."""
    return np.lexsort((values, *keys.T[::-1]))


def simpler_in(first: IntArray, second: IntArray) -> tuple[Simplicity, ...]:
    """The criteria in which ``first`` (criteria,) is simpler than ``second``."""
    return tuple(each for each, one, other in zip(Simplicity, first, second, strict=True) if one < other)


def _is_uneven(layout: Layout) -> bool:
    return len({layers for row in layout for layers in row}) > 1


def _is_odd(sizes: IntArray) -> IntArray:
    """1 where a size is not a power of two."""
    return ((sizes & (sizes - 1)) > 0).astype(np.int64)


def _memory_options(batch: CandidateBatch) -> IntArray:
    """(n,) options in use: recomputation, each module named, a limit to some layers, groups of shards, offload.

    An exchange of context ranks that is not a ring counts as one.
    """
    named = sum((batch.modules & bit > 0 for bit in MODULE_BITS.values()), np.zeros(len(batch), dtype=np.int64))
    return np.asarray(
        (batch.recompute != PLAIN)
        + named
        + (batch.recompute_layers > 0)
        + (batch.sharding_ranks > 0)
        + (batch.optimizer_offload > 0)
        + (batch.offloaded_layers > 0)
        + (batch.exchange != RING)
    )


def _unmeasured(batch: CandidateBatch, family: Family) -> IntArray:
    """(n,) how many sizes lie outside of what the family's runs had."""
    count = np.zeros(len(batch), dtype=np.int64)
    for name in MEASURED:
        low, high = family.extents[name]
        size = getattr(batch, name)
        count += (size < low) | (size > high)
    return count
