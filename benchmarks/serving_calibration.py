"""Own points of serving: how far predictions of an engine on a kind of GPU improve with twenty points of it.

    python -m benchmarks.serving_calibration --table FILE [--points N]

Rates are fitted without any row of the pair; then ``--points`` rows of it, drawn at random, calibrate them, and
the other rows are predicted before and after.  Below stand those of worker shapes without a point.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.rows import rows_of
from benchmarks.serving_fit import fitted_to, measured_figures, pair_of, problem_of, sweep_of
from benchmarks.serving_rows import MeasuredServing, serving_runs
from cluster_models.serving.own_rates import FIGURES
from solver.serving.cases import arrays_of
from solver.serving.fitting import FAR, fit_rates, predicted_figures
from solver.serving.loads import FloatArray
from solver.serving.own_points import fit_points
from solver.serving.rates import Effects, rates_of

FEWEST: Final = 40
"""Rows of a pair that is worth holding out."""
SEED: Final = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving_calibration", description="scores calibration on own points of serving"
    )
    parser.add_argument("--table", type=Path, action="append", required=True, help="measured rows; repeatable")
    parser.add_argument("--points", type=int, default=20, help="points of the pair that calibrate")
    options = parser.parse_args(arguments)
    runs = fitted_to(serving_runs(rows_of(options.table))[0])
    random = np.random.default_rng(SEED)
    every: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    for pair in dict.fromkeys(map(pair_of, runs)):
        own = [run for run in runs if pair_of(run) == pair]
        if len(own) < FEWEST:
            continue
        effects = fit_rates(problem_of([run for run in runs if pair_of(run) != pair]), FAR)
        order = random.permutation(len(own))
        points, rest = ([own[row] for row in some] for some in np.split(order, [options.points]))
        found = fit_points(
            [run.case for run in points], measured_figures(points), list(map(sweep_of, points)), effects
        )
        ((_, fit),) = found.items()
        shifts = {name: float(np.log(value)) for name, value in fit.fitted.factors.items()}
        before, after = (_errors(rest, effects, own_shifts) for own_shifts in ({}, shifts))
        seen = set(map(sweep_of, points))
        unseen = np.array([sweep_of(run) not in seen for run in rest])
        reach = np.array([fit.fitted.spreads.get(name, np.nan) for name in FIGURES])
        inside = np.abs(np.log1p(after)) <= reach
        every.append((before, after, unseen))
        print(
            f"{pair}: {len(rest)} rows, {fit.explanation}; {_line(before, after)}; within intervals "
            f"{inside[np.isfinite(after)].mean():.0%}",
            flush=True,
        )
    befores, afters, unseens = (np.concatenate(parts) for parts in zip(*every, strict=True))
    print(f"all: {_line(befores, afters)}")
    print(f"worker shapes without a point: {_line(befores[unseens], afters[unseens])}")
    worse = sum(_worse(before, after) for before, after, _ in every)
    print(f"pairs whose times per token are worse in their mean: {worse} of {len(every)}")
    return 0


def _errors(runs: Sequence[MeasuredServing], effects: Effects, shifts: dict[str, float]) -> FloatArray:
    cases = [run.case for run in runs]
    rates = rates_of([case.properties for case in cases], effects, [shifts] * len(cases))
    return predicted_figures(arrays_of(cases), rates) / measured_figures(runs) - 1.0


def _line(before: FloatArray, after: FloatArray) -> str:
    def shown(column: FloatArray) -> str:
        known = np.abs(column[np.isfinite(column)])
        return f"{np.median(known):.1%}/{known.mean():.1%}" if len(known) else "-"

    return ", ".join(f"{name} {shown(before[:, i])} -> {shown(after[:, i])}" for i, name in enumerate(FIGURES))


def _worse(before: FloatArray, after: FloatArray) -> bool:
    known = np.isfinite(before[:, 0])
    return bool(known.any() and np.abs(after[known, 0]).mean() > np.abs(before[known, 0]).mean())


if __name__ == "__main__":
    sys.exit(main())
