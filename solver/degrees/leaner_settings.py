"""Candidates with settings of the framework that take less memory (``cluster_models.training.run_settings``)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cluster_models.training.run_settings import leaner, settings_of
from solver.candidates import BoolArray, CandidateBatch, joined_batches


def with_settings(batch: CandidateBatch, code: int) -> CandidateBatch:
    """``batch`` with the settings of a code."""
    return replace(batch, settings=np.full(len(batch), code, dtype=np.int64))


def take_changed(batch: CandidateBatch, code: int) -> CandidateBatch:
    """The candidates that the settings of ``code`` change, with them; others are as without."""
    return with_settings(batch.take(_changes(batch, code)), code)


def take_alike(batch: CandidateBatch, code: int) -> CandidateBatch:
    """The candidates that the settings of ``code`` do not change."""
    return batch.take(~_changes(batch, code))


def _changes(batch: CandidateBatch, code: int) -> BoolArray:
    """(n,) whether anything changes: a single tensor rank overlaps nothing anyway."""
    return np.asarray((batch.tensor > 1) | (settings_of(code).overlap_tensor is not False))


def leanest(batch: CandidateBatch) -> CandidateBatch:
    """``batch`` with the settings that take the least memory."""
    least = {code: (*leaner(code), code)[0] for code in np.unique(batch.settings).tolist()}
    return replace(batch, settings=np.array([least[code] for code in batch.settings.tolist()], dtype=np.int64))


def every_leaner(batch: CandidateBatch) -> CandidateBatch:
    """``batch`` and the same with all settings that take less memory."""
    parts = [batch]
    for code in np.unique(batch.settings).tolist():
        own = batch.take(batch.settings == code)
        parts += [take_changed(own, each) for each in leaner(code)]
    return joined_batches(parts)
