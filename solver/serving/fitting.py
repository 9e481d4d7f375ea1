"""Rates fitted to measured runs: robust least squares on log(predicted / measured), regularised towards the priors.

    minimise  sum_i w_i rho((r_i / s_i)^2) + sum_j (u_j / t_j)^2,     rho(z) = 2 (sqrt(1 + z) - 1)   (soft L1)

r_i: one figure of one run (time per output token, time to first token, throughput), s_i the error it is granted,
u_j the effect of a level (``solver.serving.rates``) and t_j the spread its prior grants.  A figure depends on the
effects of a case only through their sums, one a quantity, so derivatives of all rows take one evaluation a
quantity.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from solver.serving.cases import Arrays, steady_of
from solver.serving.loads import FloatArray
from solver.serving.rates import COMMON, QUANTITIES, Effects, Properties, Rates, level_names, value_of

GRANTED: Final = (0.06, 0.20, 0.06)
"""Errors granted to time per output token, time to first token and throughput: about what repeats and unknown
settings of engines leave."""
MODEL: Final = "model"
"""The property of the effects that a fit adds last."""
DERIVATIVE_STEP: Final = 1e-4
MOST_ROUNDS: Final = 40
TOLERANCE: Final = 3e-4
"""A round that lowers the objective by less than this share is the last."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Shares of the spreads of ``QUANTITIES`` that a fit grants to common effects and to single levels.

    ``of_models``: whether it adds effects of models.
    """

    common: float
    levels: float
    of_models: bool


NEAR: Final = Prior(1.0, 0.6, of_models=True)
"""Does best on other loads and worker shapes of measured models (groups held out, docs/serving_accuracy.md)."""
FAR: Final = Prior(0.4, 0.4, of_models=False)
"""Does best on models, and pairs of engine and GPU, that were not measured."""


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """n cases with their figures (n, 3): seconds per output token, seconds to the first token, requests/s.

    NaN where not measured; ``weights`` (n,) of the rows.
    """

    arrays: Arrays
    properties: Sequence[Properties]
    figures: FloatArray
    weights: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """Unknowns of a fit: ``names`` (quantity, level) with the ``spreads`` of their priors.

    ``columns`` by quantity (n, k) are the unknowns of each case, padded with the index of one that is always 0.
    ``profiles`` (m, sum of k) are the different rows of all columns side by side, ``profile_of`` (n,) a case's.
    """

    names: tuple[tuple[str, str], ...]
    spreads: FloatArray
    columns: dict[str, npt.NDArray[np.intp]]
    profiles: npt.NDArray[np.intp]
    profile_of: npt.NDArray[np.intp]


def design_of(properties: Sequence[Properties], prior: Prior) -> Design:
    """The unknowns that cases with these properties have."""
    names: dict[tuple[str, str], int] = {}
    found: dict[str, list[list[int]]] = defaultdict(list)
    for case in properties:
        for name, quantity in QUANTITIES.items():
            levels = level_names(quantity, case)
            found[name].append([names.setdefault((name, level), len(names)) for level in levels])
    spreads = np.array(
        [
            QUANTITIES[name].spread * prior.common
            if level == COMMON
            else QUANTITIES[name].level_spread * (1.0 if level.startswith(MODEL) else prior.levels)
            for name, level in names
        ]
    )
    padding = len(names)
    columns = {}
    for name, rows in found.items():
        width = max(len(row) for row in rows)
        columns[name] = np.array([row + [padding] * (width - len(row)) for row in rows], dtype=np.intp)
    profiles, profile_of = np.unique(np.concatenate(list(columns.values()), axis=1), axis=0, return_inverse=True)
    return Design(tuple(names), spreads, columns, profiles, profile_of.reshape(-1))


def predicted_figures(arrays: Arrays, rates: Rates) -> FloatArray:
    """(n, 3) figures in the order of ``Measured.figures``."""
    steady = steady_of(arrays, rates)
    return np.stack([steady.token_s, steady.first_token_s, steady.requests_per_s], axis=1)


def fit_rates(measured: Measured, prior: Prior = NEAR) -> Effects:
    """The effects that fit best: first those that models share, then with these at rest those of single models."""
    design = design_of(measured.properties, prior)
    known = np.isfinite(measured.figures)
    logs = np.where(known, np.log(np.where(known, measured.figures, 1.0)), 0.0)
    weights = np.where(known, measured.weights[:, None], 0.0)
    unknowns = np.zeros(len(design.names))
    of_models = np.array([level.startswith(MODEL) for _, level in design.names])
    rounds = (~of_models, of_models) if prior.of_models else (~of_models,)
    for free in map(np.flatnonzero, rounds):
        unknowns = _descend(measured, design, unknowns, free, logs, weights)
    effects: dict[str, dict[str, float]] = {}
    for (name, level), effect in zip(design.names, unknowns, strict=True):
        effects.setdefault(name, {})[level] = float(effect)
    return effects


def _descend(
    measured: Measured,
    design: Design,
    unknowns: FloatArray,
    free: npt.NDArray[np.intp],
    logs: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """``unknowns`` with the ``free`` ones fitted: reweighted Gauss-Newton steps, halved until they help."""
    value, residuals = _objective(measured, design, unknowns, logs, weights)
    for _ in range(MOST_ROUNDS):
        step = _step(measured, design, unknowns, free, residuals, weights)
        scale, before = 1.0, value
        while scale > 1e-3:
            trial = unknowns + scale * step
            value_there, residuals_there = _objective(measured, design, trial, logs, weights)
            if value_there < value:
                unknowns, value, residuals = trial, value_there, residuals_there
                break
            scale *= 0.5
        if before - value < TOLERANCE * before:
            break
    return unknowns


def _rates(design: Design, unknowns: FloatArray, *, moved: str = "") -> Rates:
    """Rates of the cases; the effect of quantity ``moved`` lies a small step higher."""
    padded = np.append(unknowns, 0.0)
    return Rates(
        **{
            name: value_of(QUANTITIES[name], padded[columns].sum(axis=1) + DERIVATIVE_STEP * (name == moved))
            for name, columns in design.columns.items()
        }
    )


def _objective(
    measured: Measured, design: Design, unknowns: FloatArray, logs: FloatArray, weights: FloatArray
) -> tuple[float, FloatArray]:
    residuals = (np.log(predicted_figures(measured.arrays, _rates(design, unknowns))) - logs) / GRANTED
    robust = 2.0 * (np.sqrt(1.0 + residuals**2) - 1.0)
    return float((weights * robust).sum() + ((unknowns / design.spreads) ** 2).sum()), residuals


def _step(
    measured: Measured,
    design: Design,
    unknowns: FloatArray,
    free: npt.NDArray[np.intp],
    residuals: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """The Gauss-Newton step of the ``free`` unknowns; soft L1 weighs a residual by 1 / sqrt(1 + r^2).

    Cases of one profile have the same unknowns, so their derivatives by quantity (n, 3, q) are summed first.
    """
    base = np.log(predicted_figures(measured.arrays, _rates(design, unknowns)))
    root = np.sqrt(weights / np.sqrt(1.0 + residuals**2))
    moved = set(np.array([name for name, _ in design.names])[free])
    slopes = np.stack(
        [
            root * (np.log(predicted_figures(measured.arrays, _rates(design, unknowns, moved=name))) - base)
            if name in moved
            else np.zeros_like(base)
            for name in design.columns
        ],
        axis=2,
    ) / (DERIVATIVE_STEP * np.array(GRANTED)[:, None])
    size = len(design.names)
    normal, gradient = np.zeros((size + 1, size + 1)), np.zeros(size + 1)
    quantity = np.repeat(np.arange(len(design.columns)), [each.shape[1] for each in design.columns.values()])
    for profile, levels in enumerate(design.profiles):
        here = design.profile_of == profile
        own = slopes[here].reshape(-1, slopes.shape[2])
        normal[np.ix_(levels, levels)] += (own.T @ own)[np.ix_(quantity, quantity)]
        gradient[levels] += (own.T @ (root * residuals)[here].reshape(-1))[quantity]
    normal = normal[:size, :size] + np.diag(1.0 / design.spreads**2)
    right = -gradient[:size] - unknowns / design.spreads**2
    step = np.zeros(size)
    step[free] = np.linalg.solve(normal[np.ix_(free, free)], right[free])
    return step
