"""Parameters of own runs, from their step times and from their peak memory.

The values that are taken without own runs are the prior: what was fitted on others' runs is known as well as its
interval says, and a framework or GPU kind that nobody measured strays as those do which somebody measured
(``beliefs``).  The result is the most probable of all (``posterior``), as far as it predicts runs that were
left out better (``explanations``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from cluster_models.calibration.fitted import ErrorSpread, FittedParameters
from cluster_models.calibration.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.costs.calibration import PARAMETERS, Calibration, calibration_of, shipped_parameters
from solver.fitting.beliefs import Belief, beliefs_of
from solver.fitting.explanations import FEWEST_FOR_CHOICE, FEWEST_FOR_PARAMETERS, Trial, explain
from solver.fitting.families import error_spread, independence
from solver.fitting.least_squares import NOTICEABLE
from solver.fitting.patterns import patterns_of
from solver.fitting.priced import OwnRuns, PeakMemory, StepTimes
from solver.fitting.report import Explanation, FitReport, FittedUnknown
from solver.fitting.unknowns import MEMORY_PARAMETERS, Unknown, kind_itself, unknowns_of, with_values

SOURCE = "own runs"


def fit_own_steps(
    runs: Sequence[TrainingRun],
    parameters: Collection[str] | None = None,
    *,
    groups: Sequence[str] | None = None,
    start: FittedParameters | None = None,
    known: FittedParameters | None = None,
) -> FitReport:
    """The ``parameters`` (default: all of step times) of the GPU kinds and frameworks in ``runs``.

    ``groups`` names sweeps: where there are enough of them, a run is predicted without its sweep, else without its
    configuration; never from another run of its configuration.  ``start``: what own measurements told already.
    ``known``: what was fitted on others' runs (default: the shipped parameters).
    """
    wanted = [name for name in parameters or PARAMETERS if name not in MEMORY_PARAMETERS]
    kept = [i for i, run in enumerate(runs) if run.step_s is not None]
    labels = None if groups is None else [groups[i] for i in kept]
    return _fit(StepTimes, [runs[i] for i in kept], wanted, labels=labels, upon=(start, known))


def fit_own_memory(
    runs: Sequence[TrainingRun], *, start: FittedParameters | None = None, known: FittedParameters | None = None
) -> FitReport:
    """The parameters of memory of the ``runs`` with a measured peak; errors are those of the peaks."""
    measured = [run for run in runs if run.peak_memory_bytes is not None]
    return _fit(PeakMemory, measured, MEMORY_PARAMETERS, labels=None, upon=(start, known))


def _fit(
    priced: type[OwnRuns],
    runs: Sequence[TrainingRun],
    parameters: Collection[str],
    *,
    labels: Sequence[str] | None,
    upon: tuple[FittedParameters | None, FittedParameters | None],
) -> FitReport:
    """``upon``: the parameters to start from, and what is known of others."""
    start, known = upon

    def prior_of(run: TrainingRun) -> Calibration:
        return calibration_of(run.gpu, run.workload.framework, start)

    unknowns = unknowns_of(runs, parameters, kind_itself)
    beliefs = beliefs_of(unknowns, runs, known or shipped_parameters(), prior_of=prior_of, kind_name=kind_itself)
    if not runs:
        return _nothing_measured(start)
    configurations = [repr((run.architecture, run.workload, run.configuration, run.gpu.name)) for run in runs]
    sweep_of: dict[str, str] = {}
    labels = [sweep_of.setdefault(*pair) for pair in zip(configurations, labels or configurations, strict=True)]
    if len(set(labels)) < FEWEST_FOR_PARAMETERS:
        labels = configurations
    trials = explain(lambda some: priced(runs, some, start), list(beliefs.values()), labels)
    report = _report(runs, beliefs.values(), trials, (start, _spread(trials[-1].held_out, labels)))
    return replace(report, patterns=patterns_of(runs, trials[-1].errors)) if priced is StepTimes else report


def _spread(held_out: FloatArray, labels: Sequence[str]) -> ErrorSpread | None:
    """How far unseen runs are off, those of one label worth what is independent of them; ``None`` of too few."""
    weights = independence(-held_out, labels)
    if weights.sum() < FEWEST_FOR_CHOICE:
        return None
    return replace(error_spread(-held_out, weights), runs=round(weights.sum()))


def _nothing_measured(start: FittedParameters | None) -> FitReport:
    sentence = "No run has a measured step: nothing was fitted."
    return FitReport(start or FittedParameters({}, {}, SOURCE), (), (), (), (), (), (), (sentence,))


def _report(
    runs: Sequence[TrainingRun],
    beliefs: Collection[Belief],
    trials: Sequence[Trial[Belief]],
    upon: tuple[FittedParameters | None, ErrorSpread | None],
) -> FitReport:
    """``upon``: the parameters that the fit started from, and the spread of its errors."""
    (start, spread), taken = upon, trials[-1]
    before = next(each for each in trials if each.explanation is Explanation.NOTHING)
    told = _told(trials)
    found = tuple(told.get(each.unknown) or _untold(each) for each in beliefs)
    values = {each.unknown: each.fitted for each in found if each.told}
    parameters = replace(with_values(start, values, SOURCE), errors=spread)
    return FitReport(
        parameters=parameters,
        unknowns=found,
        runs=tuple(run.name for run in runs),
        errors_before=_floats(before.errors),
        errors_after=_floats(taken.errors),
        errors_held_out=_floats(taken.held_out),
        errors_without=(),
        warnings=(),
        explanation=taken.explanation,
        outliers=taken.outliers,
    )


def _told(trials: Sequence[Trial[Belief]]) -> dict[Unknown, FittedUnknown]:
    """Unknowns of the explanation that is taken; that nothing differs is known as well as the common factor is."""
    taken = trials[-1]
    shown = taken
    if taken.explanation is Explanation.NOTHING:
        shown = next((each for each in trials if each.explanation is Explanation.FACTOR), taken)
    prior = np.array([each.spread for each in shown.beliefs])
    steps = (np.abs(shown.posterior.columns) * prior > NOTICEABLE).sum(axis=0)
    found = {}
    for j, belief in enumerate(shown.beliefs):
        fitted = belief.to_fitted(float(shown.posterior.free[j]), float(shown.posterior.spreads[j]), int(steps[j]))
        if taken is not shown:
            value = belief.value
            fitted = replace(fitted, value=value, low=min(fitted.low, value), high=max(fitted.high, value))
        found[belief.unknown] = FittedUnknown(belief.unknown, fitted, belief.value, told=True)
    return found


def _untold(belief: Belief) -> FittedUnknown:
    """Unknown that keeps its value, with all that is known of it."""
    return FittedUnknown(
        belief.unknown, belief.to_fitted(belief.middle, belief.spread, 0), belief.value, told=False
    )


def _floats(errors: FloatArray) -> tuple[float, ...]:
    return tuple(float(each) for each in errors)
