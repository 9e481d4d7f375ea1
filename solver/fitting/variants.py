"""Prices a run under many values of the parameters at once.

The formulas work on arrays with a row for each candidate.  A parameter that is an array with as many rows gives
each row its own value, so that one run repeated n times is priced under n sets of values in hardly more time than
under one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.fitting.unknowns import Unknown, with_values
from solver.runs import predict_runs

LARGEST_AXIS: Final = 8
"""No axis of the formulas' arrays is longer, apart from rows, and chunks and ranks of the pipeline."""


class PerRow(np.ndarray[Any, np.dtype[Any]]):
    """(n,) values of one parameter, one for each row of candidates, in place of a single number.

    With numbers it makes another; with arrays whose first axis is rows, plain arrays row by row.  A condition on it
    must hold for all rows or for none.
    """

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """``ufunc`` of plain arrays, with rows along the first axis."""
        arrays = [np.asarray(each) for each in inputs]
        axes = max(each.ndim for each in arrays)
        if any(each.ndim > 1 and len(each) == len(self) for each in arrays):
            arrays = [each.reshape(-1, *[1] * (axes - 1)) if each.ndim == 1 else each for each in arrays]
        found = getattr(ufunc, method)(*arrays, **options)
        numbers = all(isinstance(each, PerRow) or np.ndim(each) == 0 for each in inputs)
        return found.view(PerRow) if numbers and isinstance(found, np.ndarray) else found

    def __bool__(self) -> bool:
        """Whether the condition holds for every row; raises ``ValueError`` where rows differ."""
        holds = np.asarray(self)
        if holds.any() and not holds.all():
            raise ValueError("rows take different branches of a formula")
        return bool(holds.all())


def predict_variants(
    run: TrainingRun, start: FittedParameters | None, variants: Mapping[Unknown, FloatArray]
) -> FloatArray:
    """(n,) seconds of the step of ``run`` with each of n values of the unknowns in ``variants`` upon ``start``.

    Where rows would take different branches of a formula, each is priced alone.
    """
    return predict_rows([run] * len(next(iter(variants.values()))), start, variants)


def predict_rows(
    runs: Sequence[TrainingRun], start: FittedParameters | None, variants: Mapping[Unknown, FloatArray]
) -> FloatArray:
    """The same where each value is for a run of its own; all ``runs`` must share their terms (``shared_terms``)."""
    count = len(runs)
    degrees = runs[0].configuration.degrees
    rows = max(count, LARGEST_AXIS + 1)
    while rows in (degrees.pipeline, degrees.pipeline * degrees.virtual_pipeline):
        rows += 1
    padded = {unknown: np.pad(column, (0, rows - count), mode="edge") for unknown, column in variants.items()}
    try:
        padded_runs = [*runs, *[runs[-1]] * (rows - count)]
        predictions = predict_runs(padded_runs, _parameters(start, padded))
    except (ValueError, TypeError):
        singles = [{each: column[i : i + 1] for each, column in variants.items()} for i in range(count)]
        predictions = [
            predict_runs([run], _parameters(start, single))[0] for run, single in zip(runs, singles, strict=True)
        ]
    return np.array([each.step_s for each in predictions[:count]])


def _parameters(start: FittedParameters | None, columns: Mapping[Unknown, FloatArray]) -> FittedParameters:
    values: dict[Unknown, FittedValue] = {}
    for unknown, column in columns.items():
        value: Any = float(column[0]) if (column == column[0]).all() else column.view(PerRow)
        values[unknown] = FittedValue(value, value, value, 0)
    return with_values(start, values, "")
