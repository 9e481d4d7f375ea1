"""How far measured and predicted ratios of two configurations differ, from runs of the same sweep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from cluster_models.calibration.training_run import TrainingRun
from solver.candidates import FloatArray, batch_of
from solver.costs.confidence import LEVEL
from solver.costs.differences import DifferenceError, sizes_of

COMPETITIVE: Final = 1.5
"""Only configurations predicted within this factor of the best of their sweep are compared, as when choosing."""
FEWEST_RUNS: Final = 3
"""Rows of a sweep that says anything."""
RATIOS: Final = np.concatenate([[0.0], np.geomspace(0.1, 10.0, 81)])
"""Ratios of the error of a doubling to that of settings, tried in turn."""


def difference_error_of(
    runs: Sequence[TrainingRun], errors: Sequence[float], sweeps: Sequence[str]
) -> DifferenceError | None:
    """The error of differences; ``errors`` are log(predicted / measured), runs without a sweep have an empty one.

    The quantile regression of the absolute differences, each sweep weighing the same (Koenker and Bassett 1978).
    ``None`` where no two runs can be compared.
    """
    together: dict[object, list[int]] = defaultdict(list)
    for row, (run, sweep) in enumerate(zip(runs, sweeps, strict=True)):
        if sweep:
            together[sweep, run.architecture, run.workload, run.gpu.name, run.configuration.degrees.gpus].append(
                row
            )
    found = [_pairs([runs[i] for i in rows], np.array([errors[i] for i in rows])) for rows in together.values()]
    found = [(apart, strays) for apart, strays in found if len(strays)]
    if not found:
        return None
    apart, strays = (np.concatenate(column) for column in zip(*found, strict=True))
    weights = np.concatenate([np.full(len(each), 1.0 / len(each)) for _, each in found])
    fits = [_settings(strays / np.sqrt(1 + ratio**2 * apart), weights) for ratio in RATIOS]
    losses = [
        _loss(strays - settings * np.sqrt(1 + ratio**2 * apart), weights)
        for ratio, settings in zip(RATIOS, fits, strict=True)
    ]
    best = int(np.argmin(losses))
    return DifferenceError(fits[best], float(RATIOS[best]) * fits[best], len(strays), len(found))


def _pairs(runs: Sequence[TrainingRun], errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Doublings between competitive configurations of a sweep, and how far their errors are apart."""
    predicted = np.exp(errors) * np.array([run.step_s or np.nan for run in runs])
    near = np.flatnonzero(predicted <= COMPETITIVE * predicted.min())
    if len(near) < FEWEST_RUNS:
        return np.empty(0), np.empty(0)
    sizes = np.concatenate([sizes_of(batch_of(runs[i].configuration)) for i in near.tolist()])
    first, second = np.triu_indices(len(near), 1)
    strays: FloatArray = np.abs(errors[near[first]] - errors[near[second]])
    return np.abs(sizes[first] - sizes[second]).sum(axis=1), strays


def _settings(strays: FloatArray, weights: FloatArray) -> float:
    """The weighted quantile of ``strays`` at the level of intervals."""
    order = np.argsort(strays, kind="stable")
    below = np.cumsum(weights[order]) / weights.sum()
    return float(strays[order][np.searchsorted(below, LEVEL)])


def _loss(beyond: FloatArray, weights: FloatArray) -> float:
    """Loss that the quantile makes least."""
    return float((weights * np.maximum(LEVEL * beyond, (LEVEL - 1) * beyond)).sum())
