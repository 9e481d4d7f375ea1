"""Candidates with settings of the framework that take less memory (``cluster_models.training.run_settings``)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cluster_models.training.frameworks import Framework
from cluster_models.training.run_settings import leaner, settings_of
from solver.candidates import SCHEDULE_CODES, BoolArray, CandidateBatch, FloatArray, IntArray, joined_batches


def with_settings(batch: CandidateBatch, code: int) -> CandidateBatch:
    """``batch`` with the settings of a code."""
    return replace(batch, settings=np.full(len(batch), code, dtype=np.int64))


def changes(batch: CandidateBatch, code: int) -> BoolArray:
    """(n,) whether the leaner settings of ``code`` change anything that those of other codes do not.

    A single tensor rank overlaps nothing anyway, nor do any where backward passes are split.
    """
    split = np.array([schedule.splits_backward for schedule in SCHEDULE_CODES])[batch.schedule]
    return np.asarray(((batch.tensor > 1) & ~split) | (settings_of(code).overlap_tensor is not False))


def leanest(batch: CandidateBatch, framework: Framework) -> CandidateBatch:
    """``batch`` with the settings of ``framework`` that take the least memory."""
    least = {code: (*leaner(code, framework), code)[0] for code in np.unique(batch.settings).tolist()}
    return replace(batch, settings=np.array([least[code] for code in batch.settings.tolist()], dtype=np.int64))


def every_leaner(batch: CandidateBatch, framework: Framework) -> CandidateBatch:
    """``batch`` and the same with all settings of ``framework`` that take less memory."""
    parts = [batch]
    for code in np.unique(batch.settings).tolist():
        own = batch.take(batch.settings == code)
        parts += [with_settings(own.take(changes(own, each)), each) for each in leaner(code, framework)]
    return joined_batches(parts)


def fitting_or_nearest(candidate: IntArray, excess_bytes: FloatArray) -> IntArray:
    """Rows that fit, and of a ``candidate`` (n,) with none the one that misses by least, in their order."""
    fits = excess_bytes <= 0
    order = np.lexsort((excess_bytes, candidate))
    first = order[np.flatnonzero(np.diff(candidate[order], prepend=-1))]
    return np.union1d(np.flatnonzero(fits), first[~fits[first]])
