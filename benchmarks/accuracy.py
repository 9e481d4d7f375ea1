"""Scores the cost model on tables of measured training steps, peak memory and runs that did not fit.

    python -m benchmarks.accuracy [--table PATH] [--memory PATH] [--oom PATH] [--json] [--rows] [--out PATH]
        [--page PATH]

Tables may be given several times.  Without ``--table`` the project's own small table of published steps is used.
``--json`` prints ``Report`` as JSON.  ``--out`` writes what is predicted for each row of ``--table``, measured
columns unread: id, seconds, GiB of the fullest GPU, and whether it fits.  ``--page`` writes the report as a page of
the manual with a figure beside it.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.accuracy_page import write_page
from benchmarks.measured import Measured, runs_of, with_doubts
from benchmarks.rows import rows_of, text
from benchmarks.scores import Score, grouped, missed_aims
from benchmarks.sweeps import SweepScore, SweepSummary, summary, sweep_scores
from cluster_models.training.workload import TrainingWorkload
from cluster_models.units import GIB
from solver.run_memory import predict_counted_memory, predict_fits, predict_peak_memory
from solver.runs import predict_runs

HEADROOM: Final = TrainingWorkload(sequence_length=1, global_batch=1).memory_headroom
"""Share of a GPU's memory that workloads leave free by default."""
OWN_TABLE: Final = Path(__file__).parent / "data" / "published_steps.csv"
OUT_COLUMNS: Final = ("id", "predicted_iter_time_s", "predicted_memory_gib", "fits")


@dataclass(frozen=True, slots=True)
class RowError:
    """One row: predicted / measured - 1, why it is not believed (empty: it is), and what was assumed of it."""

    id: str
    framework: str
    error: float
    doubt: str
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Ids of the rows, of so many, that are predicted not to fit though they ran."""

    of: int
    rows: list[str]


@dataclass(frozen=True, slots=True)
class TooLow:
    """Ids of the rows, of so many, whose peak is predicted too low by more than ``HEADROOM``; the lowest error."""

    of: int
    worst: float
    rows: list[str]


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """Ids of runs that ran out of memory: predicted to, not predicted to, and reasons of unreadable rows."""

    caught: list[str]
    missed: list[str]
    doubtful_missed: list[str]
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the command prints; ``None`` where the table was not given or the rows not asked for.

    Errors are predicted / measured - 1.  ``skipped`` counts rows by the reason why they are not scored;
    ``doubtful`` says of rows by id why their figures are not believed.
    """

    step_time: list[Score]
    sweeps: list[SweepScore]
    sweep_summary: SweepSummary | None
    sweep_summary_without_doubtful_rows: SweepSummary | None
    ran_but_rejected: Rejected
    memory: list[Score] | None
    memory_too_low: TooLow | None
    oom: OutOfMemory | None
    skipped: dict[str, int]
    doubtful: dict[str, str]
    missed_aims: list[str]
    rows: list[RowError] | None


def report(
    tables: Sequence[Path], memory: Sequence[Path] = (), oom: Sequence[Path] = (), *, rows: bool = False
) -> Report:
    """Scores of the rows of ``tables`` and, where given, of measured peaks and of runs out of memory."""
    every, skipped = runs_of(rows_of(tables))
    kept = with_doubts([each for each in every if each.run.step_s is not None])
    seconds = [prediction.step_s for prediction in predict_runs([each.run for each in kept])]
    errors = [step_s / each.seconds - 1.0 for each, step_s in zip(kept, seconds, strict=True)]
    by_name = {each.run.name: step_s for each, step_s in zip(kept, seconds, strict=True)}
    tight = [each.run.name for each in kept if not _leaves_headroom(each)]
    step_time, sweeps = grouped(kept, errors), sweep_scores(kept, by_name, tight)
    believed = summary(sweep_scores([each for each in kept if not each.doubt], by_name, tight))
    rejected = _rejected(kept)
    peaks, too_low = _memory_scores(memory) if memory else (None, None)
    failed = _out_of_memory(oom) if oom else None
    return Report(
        step_time=step_time,
        sweeps=sweeps,
        sweep_summary=summary(sweeps),
        sweep_summary_without_doubtful_rows=believed,
        ran_but_rejected=rejected,
        memory=peaks,
        memory_too_low=too_low,
        oom=failed,
        skipped=dict(skipped) | {"step time not stated": len(every) - len(kept)},
        doubtful={each.run.name: each.doubt for each in kept if each.doubt},
        missed_aims=missed_aims(
            step_time,
            peaks or [],
            believed,
            rejected=len(rejected.rows) / max(rejected.of, 1),
            oom_missed=0 if failed is None else len(failed.missed),
        ),
        rows=_row_errors(kept, errors) if rows else None,
    )


def _leaves_headroom(each: Measured) -> bool:
    """Whether a planner would take the row's configuration with its usual head-room."""
    return predict_peak_memory(each.run) <= (1.0 - HEADROOM) * each.run.gpu.memory_bytes


def _rejected(measured: Sequence[Measured]) -> Rejected:
    judged = [each.run for each in measured if each.run.recompute_known]
    return Rejected(len(judged), [run.name for run in judged if not predict_fits(run)])


def _row_errors(measured: Sequence[Measured], errors: Sequence[float]) -> list[RowError]:
    return [
        RowError(each.run.name, each.run.workload.framework.name, round(error, 3), each.doubt, each.run.assumed)
        for each, error in zip(measured, errors, strict=True)
    ]


def _memory_scores(tables: Sequence[Path]) -> tuple[list[Score], TooLow]:
    every, _ = runs_of(rows_of(tables))
    kept = [each for each in every if each.run.peak_memory_bytes and each.run.recompute_known]
    measured = with_doubts(kept, peaks=True)
    errors = [predict_counted_memory(each.run) / (each.run.peak_memory_bytes or 1.0) - 1.0 for each in measured]
    low = [each.run.name for each, error in zip(measured, errors, strict=True) if error < -HEADROOM]
    return grouped(measured, errors), TooLow(len(errors), round(min(errors, default=0.0), 3), low)


def _out_of_memory(tables: Sequence[Path]) -> OutOfMemory:
    failed, skipped = runs_of(rows_of(tables))
    fitting = [each for each in with_doubts(failed) if predict_fits(each.run)]
    missed = [each.run.name for each in fitting]
    return OutOfMemory(
        caught=sorted(each.run.name for each in failed if each.run.name not in missed),
        missed=[each.run.name for each in fitting if not each.doubt],
        doubtful_missed=[each.run.name for each in fitting if each.doubt],
        skipped=dict(skipped),
    )


def write_predictions(tables: Sequence[Path], out: Path) -> int:
    """Write a line for each row of ``tables``, empty where it cannot be priced; returns how many could."""
    kept, _ = runs_of(rows_of(tables))
    found = {
        each.run.name: (
            f"{prediction.step_s:.6g}",
            f"{predict_peak_memory(each.run) / GIB:.4g}",
            str(int(predict_fits(each.run))),
        )
        for each, prediction in zip(kept, predict_runs([each.run for each in kept]), strict=True)
    }
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(OUT_COLUMNS)
        for row in rows_of(tables):
            writer.writerow([text(row, "id"), *found.get(text(row, "id"), ("", "", ""))])
    return len(found)


def _print(result: Report) -> None:
    for title, scores in (("step time", result.step_time), ("memory", result.memory or [])):
        if scores:
            print(f"{title:<80} rows   MAPE  median    p90   bias")
        for line in scores:
            errors = (
                f"{line.mean_absolute:6.1%} {line.median_absolute:6.1%} {line.p90_absolute:6.1%} {line.bias:+7.1%}"
            )
            print(f"  {line.group:<78} {line.rows:4d} {errors}")
    if result.sweeps:
        _print_sweeps(result)
    print(f"skipped: {result.skipped}")
    for name, found in (
        ("memory too low", result.memory_too_low),
        ("out of memory", result.oom),
        ("ran but rejected", result.ran_but_rejected),
    ):
        if found is not None:
            print(f"{name}: {asdict(found)}")
    for name, doubt in result.doubtful.items():
        print(f"doubtful {name}: {doubt}")
    for row in result.rows or ():
        print(f"row {row.id:<8} {row.error:+7.1%}  {'; '.join(row.assumed)}")
    for missed in result.missed_aims:
        print(f"missed: {missed}")


def _print_sweeps(result: Report) -> None:
    print(f"{'sweeps':<60} rows  regret  best is our  Spearman  Kendall")
    for each in sorted(result.sweeps, key=lambda sweep: -sweep.regret):
        figures = f"{each.regret:6.1%} {each.best_rank:9d}. {each.spearman:12.2f} {each.kendall:8.2f}"
        print(f"  {each.sweep:<58} {each.rows:4d}  {figures}")
    for title, line in (
        ("all rows", result.sweep_summary),
        ("without doubtful rows", result.sweep_summary_without_doubtful_rows),
    ):
        if line is not None:
            print(
                f"sweeps, {title}: {line.sweeps} sweeps, regret mean {line.mean_regret:.1%} worst "
                f"{line.worst_regret:.1%}, best among our first three in {line.best_in_short_list:.0%}, median "
                f"Spearman {line.median_spearman:.2f}, Kendall {line.median_kendall:.2f}"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description="scores the cost model")
    parser.add_argument("--table", type=Path, action="append", help="measured steps; repeatable")
    parser.add_argument("--memory", type=Path, action="append", default=[], help="measured peaks; repeatable")
    parser.add_argument("--oom", type=Path, action="append", default=[], help="runs that failed; repeatable")
    parser.add_argument("--page", type=Path, help="write the report as a page of the manual, with a figure")
    parser.add_argument("--out", type=Path, help="write predictions for every row of the table here, and no report")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rows", action="store_true", help="list the error of every row and what it assumes")
    options = parser.parse_args(arguments)
    tables = options.table or [OWN_TABLE]
    if options.out is not None:
        print(f"{write_predictions(tables, options.out)} rows predicted")
        return 0
    result = report(tables, options.memory, options.oom, rows=options.rows or options.page is not None)
    if options.page is not None:
        write_page(result, options.page, options.page.parent / "figures" / "accuracy.svg")
        return 0
    if options.json:
        print(json.dumps(asdict(result), allow_nan=False))
    else:
        _print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
