"""Errors of predictions that a fit tells of: confidence.toml, and how often its intervals hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.coverage import Coverage, held_out_coverage
from benchmarks.differences import difference_error_of
from benchmarks.fitted_files import confidence_text
from benchmarks.left_out_frameworks import Knowledge
from benchmarks.measured import Measured
from benchmarks.rows import text
from benchmarks.scores import source_of
from benchmarks.unseen import held_out, never_fitted, omissions_of
from cluster_models.calibration.fitted import FittedParameters
from solver.costs.confidence import Novelty
from solver.costs.differences import difference_error
from solver.fitting.families import families_of
from solver.fitting.left_out import Omission, errors_without, left_out_errors
from solver.runs import predict_runs


@dataclass(frozen=True, slots=True)
class Held:
    """The rows that were fitted, the parameters (``None``: those shipped), and log(predicted / measured).

    ``by_group``: of each row predicted without its group, ``without``: without its like, by novelty.
    """

    measured: Sequence[Measured]
    parameters: FittedParameters | None
    by_group: Sequence[float]
    without: Mapping[Novelty, Sequence[float]]


def omissions(measured: Sequence[Measured]) -> Mapping[Novelty, tuple[Omission, ...]]:
    """Rows to leave out for each novelty."""
    labels = [each.group for each in measured], [source_of(each.row) for each in measured]
    return omissions_of([each.run for each in measured], labels)


def held_as_shipped(measured: Sequence[Measured]) -> Held:
    """The shipped parameters as fitted to these rows, none of which is doubted."""
    problem, solution = Knowledge(measured).optimum
    return Held(
        measured=measured,
        parameters=None,
        by_group=left_out_errors(problem, solution, [each.group for each in measured]).tolist(),
        without={
            novelty: errors_without(problem, solution, left_out).tolist()
            for novelty, left_out in omissions(measured).items()
        },
    )


def write_confidence(fitted: Held, unfitted: Sequence[Measured], path: Path) -> list[Coverage]:
    """Write the file; ``unfitted`` rows only test.  Returns the coverage of the intervals that it makes."""
    runs, sources = [each.run for each in fitted.measured], [source_of(each.row) for each in fitted.measured]
    more, errors = _tests(fitted, unfitted)
    held = [
        *held_out(runs, sources, fitted.without),
        *never_fitted([each.run for each in more], [source_of(each.row) for each in more], errors, runs),
    ]
    known = families_of(runs, held)
    differences = difference_error_of(
        [*runs, *(each.run for each in more)],
        [*fitted.by_group, *errors],
        [text(each.row, "sweep_id") for each in (*fitted.measured, *more)],
    )
    path.write_text(confidence_text(known, differences or difference_error()), encoding="utf-8")
    return held_out_coverage(held, known)


def _tests(fitted: Held, unfitted: Sequence[Measured]) -> tuple[list[Measured], list[float]]:
    """The rows that were not fitted and whose framework is known, with log(predicted / measured)."""
    names = {each.run.name for each in fitted.measured}
    more = [
        each
        for each in unfitted
        if each.run.name not in names and not any(note.startswith("framework") for note in each.run.assumed)
    ]
    predictions = predict_runs([each.run for each in more], fitted.parameters)
    return more, [math.log(found.step_s / each.seconds) for each, found in zip(more, predictions, strict=True)]
