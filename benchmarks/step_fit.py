"""Fits parameters to measured runs; what the runs do not tell keeps its prior value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.costs.calibration import Owner
from solver.fitting.families import error_spread
from solver.fitting.least_squares import Problem, Solution, affected_runs, residuals_of, solve
from solver.fitting.left_out import Omission, errors_without, left_out_errors, wider_spreads
from solver.fitting.report import FitOptions, FitReport, FittedUnknown
from solver.fitting.robust import TOLD
from solver.fitting.unknowns import Unknown, prior_value, unknowns_of, with_values


def fit(
    runs: Sequence[TrainingRun],
    parameters: Collection[str] | None = None,
    *,
    groups: Sequence[str] | None = None,
    without: Sequence[Sequence[Omission]] = (),
    options: FitOptions | None = None,
) -> FitReport:
    """The ``parameters`` (default: all) of the GPU kinds and frameworks in ``runs`` that explain them best.

    ``groups`` names the group of each run (default: each its own): a run weighs 1/sqrt(runs of its group), so
    that a sweep of near-identical runs does not drown the others.  ``without`` are further ways to leave runs out
    for which errors are wanted; they number the runs that have a measured step, the only ones that are used.
    """
    options = options or FitOptions()
    labels = [str(i) for i in range(len(runs))] if groups is None else groups
    kept = [i for i, run in enumerate(runs) if run.step_s is not None]
    measured = [runs[i] for i in kept]
    labels = [labels[i] for i in kept]
    unknowns = unknowns_of(measured, parameters, options.kind_name)
    priors = {each: prior_value(each, measured, options.prior_of, options.kind_name) for each in unknowns}
    problem = Problem(measured, weights_of_groups(labels), priors, options)
    before = residuals_of(problem, {})
    affected = affected_runs(problem, unknowns)
    affected = {unknown: rows for unknown, rows in affected.items() if len(rows)}
    if not affected:
        return _report(problem, (labels, without), before, None)
    solution = solve(problem, affected)
    spreads = wider_spreads(problem, solution, labels)
    while len(told := _told(spreads, options.prior_spread)) < len(spreads):
        start = {unknown: solution.free[unknown] for unknown in told}
        solution = solve(problem, {unknown: affected[unknown] for unknown in told}, start)
        spreads = wider_spreads(problem, solution, labels)
    return _report(problem, (labels, without), before, (solution, spreads))


def weights_of_groups(labels: Sequence[str]) -> FloatArray:
    """(r,) one over the square root of the runs of the same label."""
    sizes = Counter(labels)
    return np.array([1.0 / math.sqrt(sizes[label]) for label in labels])


def _told(spreads: Mapping[Unknown, float], prior_spread: float) -> list[Unknown]:
    """The unknowns that the runs narrow, or the one that they narrow most."""
    told = [each for each, spread in spreads.items() if spread <= TOLD * prior_spread]
    return told or [min(spreads, key=lambda each: (spreads[each], each))]


def _report(
    problem: Problem,
    held: tuple[Sequence[str], Sequence[Sequence[Omission]]],
    before: FloatArray,
    solved: tuple[Solution, Mapping[Unknown, float]] | None,
) -> FitReport:
    """The report of a fit with its spreads; ``None`` for ``solved``: nothing was fitted.

    ``held``: the group of each run, and what else to leave out.
    """
    labels, without = held
    held_out = [before for _ in (labels, *without)]
    after = before
    told: dict[Unknown, FittedUnknown] = {}
    if solved is not None:
        solution, spreads = solved
        held_out = [
            left_out_errors(problem, solution, labels),
            *(errors_without(problem, solution, omissions) for omissions in without),
        ]
        after = solution.residuals
        told = {
            each: FittedUnknown.of(each, problem.priors[each], solution.free[each], spread, solution.steps[each])
            for each, spread in spreads.items()
        }
    found = [
        told.get(unknown) or FittedUnknown.untold(unknown, prior, problem.options.prior_spread)
        for unknown, prior in problem.priors.items()
    ]
    return FitReport(
        parameters=_parameters(problem, found, held_out[0]),
        unknowns=tuple(found),
        runs=tuple(run.name for run in problem.runs),
        errors_before=tuple(float(each) for each in before),
        errors_after=tuple(float(each) for each in after),
        errors_held_out=tuple(float(each) for each in held_out[0]),
        errors_without=tuple(tuple(float(each) for each in errors) for errors in held_out[1:]),
        warnings=_warnings(problem, found),
    )


def _parameters(problem: Problem, found: Sequence[FittedUnknown], held_out: FloatArray) -> FittedParameters:
    """The start without what was looked at now, what was told, and how far runs are off that were not fitted."""
    start = problem.options.start
    looked_at = {each.unknown for each in found}
    kept: dict[Unknown, FittedValue] = {}
    for owner, tables in () if start is None else (("gpus", start.gpus), ("frameworks", start.frameworks)):
        for name, values in tables.items():
            kept |= {
                unknown: value
                for parameter, value in values.items()
                if (unknown := Unknown(Owner(owner), name, parameter)) not in looked_at
            }
    told = {each.unknown: each.fitted for each in found if each.told}
    errors = error_spread(-held_out) if len(held_out) else None
    return replace(with_values(None, kept | told, problem.options.source), errors=errors)


def _warnings(problem: Problem, found: Sequence[FittedUnknown]) -> tuple[str, ...]:
    told = sum(each.told for each in found)
    sentences = []
    if not problem.runs:
        sentences.append("No run has a measured step: nothing was fitted.")
    elif told < len(found):
        sentences.append(
            f"The steps tell {told} of {len(found)} parameters; the others keep the values that they had."
        )
    return tuple(sentences)
