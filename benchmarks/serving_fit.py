"""Fits the rates of serving to measured rows, with whole groups held out to say what a prediction is worth.

    python -m benchmarks.serving_fit --table FILE [--table FILE] [--out FILE] [--folds N]

Writes ``solver/serving/data/rates.toml`` (or ``--out``): the effects, and under ``held_out`` the errors on rows
whose whole group the fit did not see: loads, sweeps (one worker shape of one model, GPU kind and generation), pairs
of engine generation and GPU kind, models, and sources.  Rows that leave open what decides their time are not fitted
to; nor are rows that contradict one another (``benchmarks.serving_contradictions``), and errors are told with and
without them.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.rows import rows_of
from benchmarks.scores import Score, score, source_of
from benchmarks.serving_choice import Choice, choices_of
from benchmarks.serving_rows import MeasuredServing, serving_runs
from cluster_models.serving.own_rates import FIGURES
from solver.serving.cases import arrays_of
from solver.serving.fitting import FAR, NEAR, Measured, fit_rates, predicted_figures
from solver.serving.loads import FloatArray
from solver.serving.mixes import Kinds
from solver.serving.rates import QUANTITIES, Fitted, known_levels, rates_of

OUT: Final = Path(__file__).parents[1] / "solver" / "serving" / "data" / "rates.toml"
CHOSEN: Final = "sweep"
"""The groups held out with which choices are scored: the configuration itself was not measured."""
LEAST_EFFECT: Final = 0.005
"""Smaller effects are not written."""
INTERVAL: Final = 0.8
"""Share of the rows held out whose error lies within the spread that intervals are made of."""


def sweep_of(run: MeasuredServing) -> str:
    """One worker shape of one model on one kind of GPU under one generation."""
    case = run.case
    return f"{case.architecture.name} {pair_of(run)} {case.workload.weights} {case.configuration}"


def pair_of(run: MeasuredServing) -> str:
    """Engine generation and GPU kind."""
    return f"{run.case.workload.engine.name} {run.case.gpu.name}"


def model_of(run: MeasuredServing) -> str:
    """The model."""
    return run.case.architecture.name


def publication_of(run: MeasuredServing) -> str:
    """Who published it: exports of one project count as one source for each of its files."""
    name = run.row["source"]
    return name.rpartition("source_file=")[2] if "source_file=" in name else source_of(run.row)


def load_of(run: MeasuredServing) -> str:
    """One sweep under one load."""
    load = run.case.workload
    return f"{sweep_of(run)} {load.input_tokens} {load.output_tokens} {run.case.concurrency} {load.speculation}"


GROUPS: Final[Mapping[str, Callable[[MeasuredServing], str]]] = {
    "load": load_of,
    "sweep": sweep_of,
    "engine and GPU": pair_of,
    "model": model_of,
    "source": publication_of,
}


def fitted_to(runs: Sequence[MeasuredServing], *, contradicted: bool = False) -> list[MeasuredServing]:
    """The runs to fit to: without open ones, repeats of one configuration as their median.

    ``contradicted``: also those that contradict something, which ``problem_of`` gives no weight.
    """
    repeats: dict[tuple[object, ...], list[MeasuredServing]] = defaultdict(list)
    for run in runs:
        if not run.doubt and (contradicted or not run.contradiction):
            key = (load_of(run), run.case.client, run.contradiction)
            repeats[key].append(run)
    return [
        replace(
            same[0],
            ttft_s=_median([run.ttft_s for run in same]),
            tpot_s=_median([run.tpot_s for run in same]),
            output_tok_s_per_gpu=_median([run.output_tok_s_per_gpu for run in same]),
        )
        for same in repeats.values()
    ]


def measured_figures(runs: Sequence[MeasuredServing]) -> FloatArray:
    """(n, 3) measured figures in the order of ``FIGURES``; throughput in requests/s; NaN where not stated."""
    return np.array(
        [
            [
                np.nan if run.tpot_s is None else run.tpot_s,
                np.nan if run.ttft_s is None else run.ttft_s,
                np.nan
                if run.output_tok_s_per_gpu is None
                else run.output_tok_s_per_gpu * run.case.configuration.gpus / run.case.workload.output_tokens,
            ]
            for run in runs
        ]
    ).reshape(len(runs), len(FIGURES))


def problem_of(runs: Sequence[MeasuredServing]) -> Measured:
    """The runs as a fit takes them."""
    return Measured(
        arrays_of([run.case for run in runs]),
        [run.case.properties for run in runs],
        measured_figures(runs),
        np.array([0.0 if run.contradiction else 1.0 for run in runs]),
    )


def fitted(measured: Measured) -> Fitted:
    """The rates for cases like the measured ones, and for others."""
    return Fitted(fit_rates(measured, NEAR), fit_rates(measured, FAR), _known(measured))


def _known(measured: Measured) -> frozenset[str]:
    pairs = zip(measured.properties, measured.weights, strict=True)
    return frozenset[str]().union(*(known_levels(case) for case, weight in pairs if weight > 0.0))


def held_out_figures(
    runs: Sequence[MeasuredServing], whole: Measured, group: Callable[[MeasuredServing], str], folds: int
) -> FloatArray:
    """(n, 3) predicted figures of rows that the fit did not see, nor any of their group."""
    fold = np.array([zlib.crc32(group(run).encode()) % folds for run in runs])
    figures = np.full(whole.figures.shape, np.nan)
    for number in range(folds):
        out = np.flatnonzero(fold == number)
        if not len(out) or len(out) == len(runs):
            continue
        seen = _rows(whole, np.flatnonzero(fold != number))
        known = _known(seen)
        is_near = np.array([known_levels(whole.properties[int(row)]) <= known for row in out])
        for prior, rows in ((NEAR, out[is_near]), (FAR, out[~is_near])):
            if len(rows):
                left = _rows(whole, rows)
                rates = rates_of(left.properties, fit_rates(seen, prior))
                figures[rows] = predicted_figures(left.arrays, rates)
    return figures


def _rows(whole: Measured, chosen: npt.NDArray[np.intp]) -> Measured:
    parts = {}
    for part in fields(whole.arrays):
        value = getattr(whole.arrays, part.name)
        if not isinstance(value, Kinds):  # of requests, which all rows have alike
            columns = {field.name: getattr(value, field.name)[chosen] for field in fields(value)}
            parts[part.name] = type(value)(**columns)
    return Measured(
        replace(whole.arrays, **parts),
        [whole.properties[row] for row in chosen],
        whole.figures[chosen],
        whole.weights[chosen],
    )


def scores_of(errors: FloatArray) -> dict[str, Score]:
    """Scores by figure."""
    return {
        name: score(name, [float(error) for error in column[np.isfinite(column)]])
        for name, column in zip(FIGURES, errors.T, strict=True)
        if np.isfinite(column).any()
    }


def write_rates(
    rates: Fitted, held_out: Mapping[str, tuple[FloatArray, FloatArray]], choices: Sequence[Choice], out: Path
) -> None:
    """The data file: effects by quantity and level, and what held-out rows show.

    ``held_out``: by group the errors of rows that contradict nothing, and those of all.
    """
    lines = [
        "# Fitted rates of serving: effects on the quantities of solver/serving/rates.py (log or logit scale).",
        "# Written by benchmarks.serving_fit; do not edit.",
        "known = [",
        *(f'  "{level}",' for level in sorted(rates.known)),
        "]",
    ]
    for name, (errors, every) in held_out.items():
        whole = scores_of(every)
        for figure, line in scores_of(errors).items():
            column = np.abs(np.log1p(errors[:, FIGURES.index(figure)]))
            spread = float(np.quantile(column[np.isfinite(column)], INTERVAL))
            lines += [
                "",
                "[[held_out]]",
                f'group = "{name}"',
                f'figure = "{figure}"',
                f"rows = {line.rows}",
                f"median_error = {line.median_absolute:.4f}",
                f"mean_error = {line.mean_absolute:.4f}",
                f"p90_error = {line.p90_absolute:.4f}",
                f"bias = {line.bias:.4f}",
                f"log_spread = {spread:.4f}",
                f"all_rows = {whole[figure].rows}",
                f"all_median_error = {whole[figure].median_absolute:.4f}",
                f"all_mean_error = {whole[figure].mean_absolute:.4f}",
            ]
    for choice in choices:
        lines += ["", "[[choice]]", *(f"{name} = {_toml(value)}" for name, value in asdict(choice).items())]
    for part, effects in (("near", rates.near), ("far", rates.far)):
        for name in QUANTITIES:
            lines += ["", f"[{part}.{name}]"]
            lines += [
                f'"{level}" = {effect:.4g}'
                for level, effect in sorted(effects.get(name, {}).items())
                if abs(effect) >= LEAST_EFFECT
            ]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _toml(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else json.dumps(value)


def _median(values: Sequence[float | None]) -> float | None:
    stated = [value for value in values if value is not None]
    return float(np.median(stated)) if stated else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving_fit", description="fits the rates of serving"
    )
    parser.add_argument("--table", type=Path, action="append", required=True, help="measured rows; repeatable")
    parser.add_argument("--out", type=Path, default=OUT, help="data file to write")
    parser.add_argument("--folds", type=int, default=3, help="parts into which groups are held out; 0: none")
    options = parser.parse_args(arguments)
    runs = fitted_to(serving_runs(rows_of(options.table))[0], contradicted=True)
    whole = problem_of(runs)
    believed = whole.weights > 0.0
    held_out: dict[str, tuple[FloatArray, FloatArray]] = {}
    choices: list[Choice] = []
    for name, group in GROUPS.items() if options.folds > 1 else ():
        figures = held_out_figures(runs, whole, group, options.folds)
        errors = figures / whole.figures - 1.0
        held_out[name] = errors[believed], errors
        if name == CHOSEN:
            choices = choices_of(runs, figures, whole.figures)
        _print(f"held out by {name}", errors[believed])
        _print(f"held out by {name}, with contradictions", errors)
    rates = fitted(whole)
    write_rates(rates, held_out, choices, options.out)
    errors = predicted_figures(whole.arrays, rates_of(whole.properties, rates)) / whole.figures - 1.0
    _print("fitted rows", errors[believed])
    return 0


def _print(name: str, errors: FloatArray) -> None:
    for figure, line in scores_of(errors).items():
        print(
            f"{name:<45} {figure:<12} {line.rows:5d} rows  median {line.median_absolute:6.1%}  "
            f"mean {line.mean_absolute:6.1%}  p90 {line.p90_absolute:6.1%}  bias {line.bias:+6.1%}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
