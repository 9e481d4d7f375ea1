"""Rates of serving engines fitted to own points, as a calibration holds them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from app.documents.calibration import FigureErrorsDocument, ParameterDocument, ServingRatesDocument
from app.documents.serving_points import ServingPoints
from solver.serving.loads import FloatArray
from solver.serving.own_points import PointFit, fit_points


def fitted_serving(points: ServingPoints) -> dict[str, ServingRatesDocument]:
    """Rates by engine and GPU kind."""
    names: dict[str, list[str]] = {}
    for name, case in zip(points.names, points.cases, strict=True):
        names.setdefault(case.pair, []).append(name)
    fits = fit_points(points.cases, points.figures, points.sweeps)
    return {pair: _document(fit, names[pair]) for pair, fit in sorted(fits.items())}


def _document(fit: PointFit, names: list[str]) -> ServingRatesDocument:
    return ServingRatesDocument(
        points=fit.fitted.points,
        factors={
            name: ParameterDocument(value=each.value, low=each.low, high=each.high, steps=each.steps, before=1.0)
            for name, each in sorted(fit.factors.items())
        },
        spreads=dict(fit.fitted.spreads),
        explanation=fit.explanation,
        errors={name: _errors(fit, name) for name, errors in fit.before.items() if len(errors)},
        outliers=[names[place] for place in fit.outliers],
    )


def _errors(fit: PointFit, figure: str) -> FigureErrorsDocument:
    def mean(errors: Mapping[str, FloatArray]) -> float:
        return float(np.abs(np.expm1(errors[figure])).mean())

    return FigureErrorsDocument(
        points=len(fit.before[figure]),
        before_fraction=mean(fit.before),
        after_fraction=mean(fit.after),
        held_out_fraction=mean(fit.held_out),
    )
