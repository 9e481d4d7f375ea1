"""Scores the serving model on tables of measured runs.

    python -m benchmarks.serving_accuracy --table FILE [--table FILE] [--out FILE] [--page PAGE] [--json] [--rows]

Without ``--out`` it reports errors by engine, GPU, model and mode, how well configurations are chosen, and how many
rows lie within their interval.  ``--out`` writes what is predicted for each row, measured columns unread: ``id,
predicted_ttft_ms, predicted_tpot_ms, predicted_output_tok_s_per_gpu, fits``.  ``--page`` writes the report as a
page of the manual.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.rows import rows_of, text
from benchmarks.scores import Score, score
from benchmarks.serving_choice import Choice, choices_of
from benchmarks.serving_contradictions import Contradicted, contradicted
from benchmarks.serving_repairs import estimated_run
from benchmarks.serving_rows import MeasuredServing, serving_runs
from solver.serving.cases import arrays_of, steady_of
from solver.serving.fitting import predicted_figures
from solver.serving.loads import FloatArray
from solver.serving.percentiles import latencies_at
from solver.serving.predict import interval_spread
from solver.serving.rates import rates_of
from solver.serving.starting import first_tokens_at_start

OUT_COLUMNS: Final = ("id", "predicted_ttft_ms", "predicted_tpot_ms", "predicted_output_tok_s_per_gpu", "fits")
FIGURES: Final = ("time per output token", "time to first token", "output throughput")
ALL: Final = "all"
STATED: Final = "all that state their configuration"
BELIEVED: Final = "all that contradict nothing either"
SPREAD_NAMES: Final = ("token", "first_token", "throughput")
LAST: Final = 0.99
"""The percentile that rows note."""
PROMPTS: Final = 10
"""Requests of the noted benchmarks for each one in flight: a tenth of all are sent at once, at the start."""
_P99: Final = re.compile(r"p99 ttft ([\d.]+) ms, p99 tpot ([\d.]+) ms")


@dataclass(frozen=True, slots=True)
class Coverage:
    """Share of the rows within the interval that is to hold four in five."""

    figure: str
    rows: int
    share: float


@dataclass(frozen=True, slots=True)
class RowError:
    """One row: errors predicted / measured - 1 (``None``: not measured), its doubt, and what was assumed of it.

    What it contradicts stands for the doubt where there is none.
    """

    id: str
    token: float | None
    first_token: float | None
    throughput: float | None
    doubt: str
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """Scores by figure and group; ``Score.group`` is the group, "all" the first."""

    scores: dict[str, list[Score]]
    percentiles: list[Score]
    choices: list[Choice]
    coverage: list[Coverage]
    rejected: list[str]
    contradicted: list[Contradicted]
    skipped: dict[str, int]
    rows: list[RowError] | None


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """Predictions (n, 3) of runs: seconds per output token, to the first token, output tokens/s of a GPU."""

    figures: FloatArray
    fits: FloatArray


def predicted(runs: Sequence[MeasuredServing]) -> Predicted:
    """Predictions for ``runs``, with the shipped rates."""
    arrays = arrays_of([run.case for run in runs])
    figures = predicted_figures(arrays, rates_of([run.case.properties for run in runs]))
    figures[:, 2] *= [run.case.workload.output_tokens / run.case.configuration.gpus for run in runs]
    return Predicted(figures, arrays.fits)


def measured(runs: Sequence[MeasuredServing]) -> FloatArray:
    """(n, 3) measured figures in the order of ``Predicted``; NaN where not stated."""
    values = [(run.tpot_s, run.ttft_s, run.output_tok_s_per_gpu) for run in runs]
    return np.array([[math.nan if value is None else value for value in row] for row in values]).reshape(-1, 3)


def is_believed(run: MeasuredServing) -> bool:
    """Whether a run states its configuration and contradicts nothing."""
    return not run.doubt and not run.contradiction


def families(run: MeasuredServing) -> Iterable[str]:
    """The groups of a row beside all."""
    case = run.case
    engine = case.workload.engine
    kind = "experts" if case.architecture.experts else "dense"
    yield f"mode {run.mode}{', open' if run.doubt else ', contradicted' if run.contradiction else ''}"
    if is_believed(run):
        yield f"engine {engine.family}"
        yield f"generation {engine.name}"
        yield f"GPU {case.gpu.name}"
        yield f"model {case.architecture.name}"
        yield f"{kind} models"
        yield f"weights {case.workload.weights}"


def report(tables: Sequence[Path], *, rows: bool = False) -> Report:
    """The report on ``tables``; ``rows``: with a line for each row."""
    runs, skipped = serving_runs(rows_of(tables))
    found, truth = predicted(runs), measured(runs)
    errors = found.figures / truth - 1.0
    return Report(
        percentiles=_percentiles(runs),
        scores={name: _scores(runs, errors[:, column]) for column, name in enumerate(FIGURES)},
        choices=choices_of(runs, found.figures, truth),
        coverage=_coverage(runs, errors),
        contradicted=contradicted(runs),
        rejected=[run.name for run, fits in zip(runs, found.fits, strict=True) if not fits and not run.doubt],
        skipped=dict(skipped),
        rows=_rows(runs, errors) if rows else None,
    )


def _scores(runs: Sequence[MeasuredServing], errors: FloatArray) -> list[Score]:
    groups: dict[str, list[float]] = defaultdict(list)
    for run, error in zip(runs, errors, strict=True):
        if math.isfinite(error):
            stated = () if run.doubt else (STATED, BELIEVED) if is_believed(run) else (STATED,)
            for name in (ALL, *stated, *families(run)):
                groups[name].append(float(error))
    first = (ALL, STATED, BELIEVED)
    return [score(name, groups[name]) for name in (*first, *sorted(set(groups) - set(first))) if name in groups]


def _percentiles(runs: Sequence[MeasuredServing]) -> list[Score]:
    """Errors of 99th percentiles between requests, of the rows that note them.

    First tokens: of the steady load alone, and of all, where the last hundredth are of those sent at the start.
    """
    noted = [(run, found) for run in runs if is_believed(run) and (found := _P99.search(text(run.row, "notes")))]
    if not noted:
        return []
    cases = [run.case for run, _ in noted]
    arrays = arrays_of(cases)
    rates = rates_of([case.properties for case in cases])
    first, token = latencies_at(steady_of(arrays, rates), arrays.kinds, 0, LAST).T[:2]
    start = first_tokens_at_start(arrays, rates, 1.0 - PROMPTS * (1.0 - LAST))
    lines = []
    for name, column, seconds in (
        (f"{FIGURES[1]}, steady load alone", 1, first),
        (f"{FIGURES[1]}, with those sent at the start", 1, np.maximum(first, start)),
        (FIGURES[0], 2, token),
    ):
        errors = [
            1e3 * float(each) / float(found[column]) - 1.0 for each, (_, found) in zip(seconds, noted, strict=True)
        ]
        lines.append(score(name, errors))
    return lines


def _coverage(runs: Sequence[MeasuredServing], errors: FloatArray) -> list[Coverage]:
    stated = np.array([is_believed(run) for run in runs])
    lines = []
    for column, name in enumerate(SPREAD_NAMES):
        reach = np.array([interval_spread(run.case, name) for run in runs])
        here = stated & np.isfinite(errors[:, column])
        within = np.abs(np.log1p(errors[here, column])) <= reach[here]
        if here.any():
            lines.append(Coverage(FIGURES[column], int(here.sum()), float(within.mean())))
    return lines


def _rows(runs: Sequence[MeasuredServing], errors: FloatArray) -> list[RowError]:
    def stated(value: float) -> float | None:
        return round(float(value), 4) if math.isfinite(value) else None

    return [
        RowError(run.name, *(stated(value) for value in row), run.doubt or run.contradiction, run.assumed)
        for run, row in zip(runs, errors, strict=True)
    ]


def write_predictions(tables: Sequence[Path], out: Path) -> int:
    """Write a line for each row of ``tables``; returns how many have figures.

    A row that lacks something is estimated with what is usual; standard error says what was filled in, or why a row
    is empty.
    """
    rows = rows_of(tables)
    estimates = [estimated_run(row) for row in rows]
    runs = [run for run, _ in estimates if run is not None]
    found = predicted(runs) if runs else Predicted(np.empty((0, 3)), np.empty(0))
    figures = iter(zip(found.figures, found.fits, strict=True))
    count = 0
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(OUT_COLUMNS)
        for row, (run, words) in zip(rows, estimates, strict=True):
            cells = ("", "", "", "") if run is None else _cells(*next(figures))
            count += any(cells)
            writer.writerow([text(row, "id"), *cells])
            if words or run is None:
                print(f"{text(row, 'id')}: {'' if run else 'not predicted, '}{words}", file=sys.stderr)
    return count


def _cells(figures: FloatArray, fits: float) -> tuple[str, ...]:
    """Milliseconds to the first token and per token, tokens/s of a GPU, whether it fits; empty where undefined."""
    token, first, tokens = figures
    values = (1e3 * first, 1e3 * token, tokens)
    return (*(f"{value:.6g}" if math.isfinite(value) else "" for value in values), str(int(fits)))


def _print(result: Report) -> None:
    for figure, scores in result.scores.items():
        print(f"{figure:<44} rows   mean  median    p90    bias")
        for line in scores:
            print(
                f"  {line.group:<40} {line.rows:6d} {line.mean_absolute:6.1%} {line.median_absolute:7.1%} "
                f"{line.p90_absolute:6.1%} {line.bias:+7.1%}"
            )
    for line in result.percentiles:
        figures = f"median {line.median_absolute:.1%} mean {line.mean_absolute:.1%}"
        print(f"{line.group}, {LAST:.0%} of requests: {line.rows} rows, {figures}")
    for choice in result.choices:
        print(
            f"choice, {choice.kind}: {choice.groups} groups, regret median {choice.median_regret:.1%} "
            f"90th percentile {choice.p90_regret:.1%}, within 5 % in {choice.near:.0%}, worse than 20 % in "
            f"{choice.far:.0%}"
        )
    for covered in result.coverage:
        print(
            f"interval of {covered.figure}: {covered.share:.0%} of {covered.rows} rows within (four in five meant)"
        )
    for line in result.contradicted:
        words = f"{line.rows} rows, {line.believed_else} of them state their configuration"
        print(f"contradicted: {line.engine}, {line.reason}: {words}")
    print(f"ran but predicted not to fit: {len(result.rejected)} {result.rejected[:10]}")
    print(f"skipped: {dict(Counter(result.skipped).most_common())}")
    for row in result.rows or ():
        print(f"row {row.id} {row.token} {row.first_token} {row.throughput} {row.doubt}; {'; '.join(row.assumed)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving_accuracy", description="scores serving")
    parser.add_argument("--table", type=Path, action="append", required=True, help="measured rows; repeatable")
    parser.add_argument("--out", type=Path, help="write predictions for every row here, and no report")
    parser.add_argument("--page", type=Path, help="write the report as a page of the manual")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rows", action="store_true", help="list the errors of every row and what it assumes")
    options = parser.parse_args(arguments)
    if options.out is not None:
        print(f"{write_predictions(options.table, options.out)} rows predicted")
        return 0
    result = report(options.table, rows=options.rows)
    if options.page is not None:
        from benchmarks.serving_page import write_page  # noqa: PLC0415 - it imports Report

        write_page(result, options.page)
        return 0
    if options.json:
        print(json.dumps(asdict(result), allow_nan=False))
    else:
        _print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
