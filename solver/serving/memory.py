"""Memory of one GPU of a worker, and the sequences that fit beside its weights.  Shapes (n,), an entry a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.serving.engines import MemoryShare
from solver.serving.loads import FloatArray, Loads

ACTIVATION_COPIES: Final = 8.0
"""Hidden states that a layer holds at once, with the wider ones of attention and experts: engines profile 2 to 6 GB
at 8,192 tokens of models of 5,000 to 8,000 wide (start-up logs of vLLM)."""
FEWEST: Final = 1e-9


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Bytes on each GPU: weights, what steps need, the cache of one sequence, and what the engine keeps for caches.

    ``most_sequences`` are those of the whole worker that memory holds; below 1 the worker does not serve a request.
    """

    weight_bytes: FloatArray
    step_bytes: FloatArray
    sequence_bytes: FloatArray
    cache_bytes: FloatArray
    most_sequences: FloatArray


def worker_memory(
    loads: Loads,
    *,
    tokens: tuple[FloatArray, FloatArray],
    longest: FloatArray,
    step_tokens: FloatArray,
    reserved_bytes: FloatArray,
    memory_bytes: FloatArray,
    fraction: FloatArray,
    fraction_of: Sequence[MemoryShare],
) -> WorkerMemory:
    """Memory while steps take up to ``step_tokens``.

    Sequences hold ``tokens`` on average in full layers and in those with a window; one of ``longest`` must fit.
    Paged caches waste next to nothing (Kwon et al. 2023, arXiv 2309.06180): a sequence holds what it has reached,
    on average its prompt and half of its answer.
    """
    sequence, largest = (
        (full * loads.cache_full_bytes + windowed * loads.cache_window_bytes) * loads.largest_stage
        for full, windowed in (tokens, (longest, np.minimum(longest, loads.window)))
    )
    step = reserved_bytes + ACTIVATION_COPIES * step_tokens * loads.hidden_bytes
    kinds = np.array([each.value for each in fraction_of])
    whole = fraction * memory_bytes - loads.stored_bytes
    cache = np.select(
        [kinds == MemoryShare.STATIC.value, kinds == MemoryShare.FREE.value],
        [
            np.minimum(whole, memory_bytes - loads.stored_bytes - step),
            fraction * (whole + (1 - fraction) * memory_bytes - step),
        ],
        whole - step,
    )
    most, alone = (
        np.maximum(cache, 0.0) / np.maximum(each, FEWEST) * loads.attention_data for each in (sequence, largest)
    )
    most = np.where(alone < 1.0, np.minimum(most, alone), most)
    return WorkerMemory(loads.stored_bytes, step, sequence, np.maximum(cache, 0.0), np.asarray(most))
