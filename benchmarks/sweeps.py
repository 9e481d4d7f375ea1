"""How well the cost model chooses: configurations of one model on one cluster, ranked as measured and predicted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import scipy

from benchmarks.measured import Measured
from benchmarks.rows import text

FloatArray = npt.NDArray[np.float64]

LEAST_ROWS: Final = 4
"""Fewest configurations of a sweep that is scored."""
SHORT_LIST: Final = 3
"""Configurations that an engineer would try."""


@dataclass(frozen=True, slots=True)
class SweepScore:
    """One sweep.

    ``regret``: how much longer than the measured best our pick takes; ``best_rank``: the measured best's place
    among our predictions, from 1; rank correlations over the sweep's rows (0 where all are measured alike).
    """

    sweep: str
    rows: int
    regret: float
    best_rank: int
    spearman: float
    kendall: float


@dataclass(frozen=True, slots=True)
class SweepSummary:
    """Over all sweeps; ``mean_regret_without_worst`` over all but the worst."""

    sweeps: int
    mean_regret: float
    mean_regret_without_worst: float
    worst_regret: float
    best_in_short_list: float
    median_spearman: float
    median_kendall: float


def sweep_scores(
    measured: Sequence[Measured], predicted_s: Mapping[str, float], tight: Collection[str] = ()
) -> list[SweepScore]:
    """Scores of every sweep of ``LEAST_ROWS`` rows or more, by GPU seconds per token.

    ``predicted_s``: step time by run name.  ``tight``: runs whose predicted memory a planner would not take; they
    are picked last.
    """
    sweeps: dict[str, list[Measured]] = defaultdict(list)
    for each in measured:
        if sweep := text(each.row, "sweep_id"):
            sweeps[sweep].append(each)
    return [
        sweep_score(
            sweep,
            np.array([each.gpu_seconds_per_token for each in rows]),
            np.array([each.scaled(predicted_s[each.run.name]) for each in rows]),
            np.array([each.run.name in tight for each in rows]),
        )
        for sweep, rows in sweeps.items()
        if len(rows) >= LEAST_ROWS
    ]


def sweep_score(
    sweep: str, measured: FloatArray, predicted: FloatArray, tight: npt.NDArray[np.bool_] | None = None
) -> SweepScore:
    """The score of one sweep from costs as measured and as predicted; ``tight`` rows come last in our order."""
    best = int(measured.argmin())
    order = np.lexsort((predicted, np.zeros(len(predicted)) if tight is None else tight))
    return SweepScore(
        sweep=sweep,
        rows=len(measured),
        regret=float(measured[order[0]] / measured[best] - 1.0),
        best_rank=1 + int(np.flatnonzero(measured[order] == measured[best])[0]),
        spearman=correlation(scipy.stats.spearmanr, measured, predicted),
        kendall=correlation(scipy.stats.kendalltau, measured, predicted),
    )


def correlation(coefficient: Callable[..., Any], first: FloatArray, second: FloatArray) -> float:
    """A rank ``coefficient`` of ``scipy.stats``, 0 where either does not vary."""
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(coefficient(first, second).statistic)


def summary(scores: Sequence[SweepScore]) -> SweepSummary | None:
    """Over all sweeps, ``None`` where there is none."""
    if not scores:
        return None
    regrets = np.array([score.regret for score in scores])
    return SweepSummary(
        sweeps=len(scores),
        mean_regret=float(regrets.mean()),
        mean_regret_without_worst=float((regrets.sum() - regrets.max()) / max(len(regrets) - 1, 1)),
        worst_regret=float(regrets.max()),
        best_in_short_list=float(np.mean([score.best_rank <= SHORT_LIST for score in scores])),
        median_spearman=float(np.median([score.spearman for score in scores])),
        median_kendall=float(np.median([score.kendall for score in scores])),
    )
