"""Explanations of own runs from the simplest to the richest, and the one that predicts best what it did not see.

Three are tried: that nothing differs from what is taken without own runs; that all runs of a framework are slower
or faster by one factor; that any parameter differs.  Each run is predicted by each of them, fitted to the runs of
all other configurations.  A richer explanation is taken where its errors are smaller by more than chance makes
them, and as far as so many runs that scatter so much around it can be believed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

import numpy as np
import scipy

from solver.candidates import FloatArray
from solver.fitting.posterior import FREEDOM, Believed, Posterior, Priced, Prior, Rows, most_probable, scale_of
from solver.fitting.report import Explanation
from solver.fitting.robust import TOLD

SWITCHED_ON: Final = 3.0
"""Where overheads that may be zero start a second search: ten units, a millisecond of host time for a layer.  At
zero their derivatives can vanish, as host time does beside longer kernels."""
MOST_FOLDS: Final = 60
"""Most folds in which runs are predicted from others."""
FEWEST_FOR_CHOICE: Final = 3
"""Folds below which errors of unseen runs say nothing, and only a factor is fitted."""
FEWEST_FOR_PARAMETERS: Final = 5
"""Folds below which only a factor is tried."""
SURELY: Final = 0.95
"""How sure it must be that an explanation is better than none ..."""
LIKELY: Final = 0.9
"""... and a richer one better than a simpler one that is surely better than none."""
FEW: Final = 30
"""Runs below which means of skewed gains are not normally distributed yet, so that most runs must gain."""
STRAYS: Final = 0.1
"""Standard deviation of the mean error of a framework that nobody measured, by which what was known before is wrong
(0.098 of 18 frameworks with ten runs or more, 0.102 of all 25; errors as in ``Novelty.FRAMEWORK``)."""
FAR_OUT: Final = 4.0
"""Runs so many times the usual error away are outliers ..."""
FAR_OFF: Final = math.log(1.25)
"""... where they are off by this as well."""

Belief = TypeVar("Belief", bound=Believed)


@dataclass(frozen=True, slots=True, eq=False)
class Trial(Generic[Belief]):
    """One explanation, whose errors are log(predicted / measured).

    ``posterior``: the optimum of the ``beliefs`` that the runs tell of.  ``held_out`` (r,): the error of each run
    by a fit without its fold, NaN where that leaves none.
    """

    explanation: Explanation
    beliefs: tuple[Belief, ...]
    posterior: Posterior
    held_out: FloatArray

    @property
    def errors(self) -> FloatArray:
        """(r,) of the runs as fitted."""
        return self.posterior.residuals

    @property
    def outliers(self) -> tuple[int, ...]:
        """The runs that it does not meet."""
        reach = max(FAR_OUT * self.posterior.scale, FAR_OFF)
        return tuple(np.flatnonzero(np.abs(self.errors) > reach).tolist())


def explain(
    make: Callable[[Sequence[Belief]], Priced], beliefs: Sequence[Belief], labels: Sequence[str]
) -> tuple[Trial[Belief], ...]:
    """Every explanation, the one to take last.

    ``make`` gives the runs with some of the ``beliefs`` as unknowns, the others where they stand.  Runs of the same
    of ``labels`` are predicted together from the others.
    """
    folds = folds_of(labels)
    common = [each for each in beliefs if each.is_common]
    choices: list[tuple[Explanation, list[Belief]]] = [(Explanation.NOTHING, []), (Explanation.FACTOR, common)]
    if len(folds) >= FEWEST_FOR_PARAMETERS or not common:
        choices.append((Explanation.PARAMETERS, list(beliefs)))
    trials = [
        _trial(explanation, make, some, folds)
        for explanation, some in choices
        if some or explanation is Explanation.NOTHING
    ]
    if len(folds) < FEWEST_FOR_CHOICE:
        return tuple(trials)
    taken = chosen(trials)
    others = [each for each in trials if each is not taken]
    if taken.beliefs:
        taken = _towards(taken, credibility(taken.held_out, len(set(labels))), make(taken.beliefs), folds)
    return (*others, taken)


def credibility(held_out: FloatArray, count: int) -> float:
    """Share of the way from what was known before to what ``count`` runs say, by their errors without them.

    n / (n + v / t^2), with the variance v of errors and that of what was known, t = ``STRAYS``: the least expected
    square of the error of the mean (Buehlmann 1967, Experience rating and credibility).
    """
    variance = FREEDOM / (FREEDOM - 2.0) * scale_of(held_out) ** 2
    return count / (count + variance / STRAYS**2)


def _towards(trial: Trial[Belief], share: float, priced: Priced, folds: Sequence[Rows]) -> Trial[Belief]:
    """``trial`` after a ``share`` of its way from the middles; what is left of the way adds to the spreads."""
    posterior, prior = trial.posterior, Prior.of(trial.beliefs)

    def reached(free: FloatArray) -> FloatArray:
        return np.asarray(prior.middle + share * (free - prior.middle))

    free, held_out = reached(posterior.free), trial.held_out.copy()
    for rows in folds:
        held_out[rows] = priced.residuals(reached(posterior.without(rows, prior)), rows)
    spreads = np.hypot(posterior.spreads, free - posterior.free)
    moved = replace(posterior, free=free, spreads=spreads, residuals=priced.residuals(free))
    return replace(trial, posterior=moved, held_out=held_out)


def folds_of(labels: Sequence[str]) -> list[Rows]:
    """Places of the runs that are left out together: those of a label, labels in turn if there are many."""
    places = {label: place % MOST_FOLDS for place, label in enumerate(dict.fromkeys(labels))}
    members = np.array([places[label] for label in labels], dtype=np.intp)
    return [np.flatnonzero(members == fold) for fold in sorted(set(members.tolist()))]


def _trial(
    explanation: Explanation,
    make: Callable[[Sequence[Belief]], Priced],
    beliefs: Sequence[Belief],
    folds: Sequence[Rows],
) -> Trial[Belief]:
    """The explanation by those of ``beliefs`` that the runs narrow."""
    priced, prior = make(beliefs), Prior.of(beliefs)
    posterior = most_probable(priced, prior, _starts(beliefs, prior))
    while not (told := posterior.spreads <= TOLD * prior.spread).all():
        beliefs = [each for each, is_told in zip(beliefs, told, strict=True) if is_told]
        priced, prior = make(beliefs), Prior.of(beliefs)
        posterior = most_probable(priced, prior, [posterior.free[told]])
    held_out = posterior.residuals.copy()
    if beliefs:
        for rows in folds:
            held_out[rows] = priced.residuals(posterior.without(rows, prior), rows) if len(folds) > 1 else np.nan
    return Trial(explanation, tuple(beliefs), posterior, held_out)


def _starts(beliefs: Sequence[Belief], prior: Prior) -> list[FloatArray]:
    switched = np.array([each.switched for each in beliefs], dtype=bool)
    on = [np.where(switched, SWITCHED_ON, prior.middle)] if switched.any() else []
    return [prior.middle, *on]


def chosen(trials: Sequence[Trial[Belief]]) -> Trial[Belief]:
    """The last explanation that is surely better than the first and likely better than the one taken before.

    It must be better for most of few runs, too: one that meets a few of another mechanism at the cost of all others
    explains nothing.
    """
    first = taken = trials[0]
    for trial in trials[1:]:
        if is_better(trial, first) and _is_mostly_better(trial, first) and is_better(trial, taken, LIKELY):
            taken = trial
    return taken


def is_better(trial: Trial[Belief], other: Trial[Belief], confidence: float = SURELY) -> bool:
    """Whether its losses are smaller than those of the ``other`` in the mean, by a paired t-test."""
    gains = _gains(trial, other)
    error = gains.std(ddof=1) / math.sqrt(len(gains))
    return bool(gains.mean() > scipy.special.stdtrit(len(gains) - 1, confidence) * error)


def _is_mostly_better(trial: Trial[Belief], other: Trial[Belief]) -> bool:
    """The same of few runs by signed ranks, which some large gains do not decide (Wilcoxon 1945)."""
    if len(trial.held_out) >= FEW:
        return True
    from scipy.stats import wilcoxon

    return bool(wilcoxon(_gains(trial, other), alternative="greater").pvalue < 1.0 - SURELY)


def _gains(trial: Trial[Belief], other: Trial[Belief]) -> FloatArray:
    return _losses(other.held_out) - _losses(trial.held_out)


def _losses(errors: FloatArray) -> FloatArray:
    """Losses of errors log(predicted / measured): nearly the error where small, its logarithm where large.

    Outliers decide nothing, yet a framework that is far off everywhere shows which explanation brings it nearer.
    """
    return np.log1p(np.abs(errors))
