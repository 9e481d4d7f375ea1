"""Scores the cost model on tables of measured training steps, peak memory and runs that did not fit.

    python -m benchmarks.accuracy --table PATH [--memory PATH] [--oom PATH] [--json] [--rows]

Without ``--table`` the project's own small table of published steps is used.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.published import read_run
from benchmarks.rows import Row, Skipped, read_rows
from cluster_models.training_run import TrainingRun
from solver.run_memory import predict_counted_memory, predict_fits
from solver.runs import predict_run

__all__ = ["Measured", "read_rows", "runs_of"]

OWN_TABLE: Final = Path(__file__).parent / "data" / "published_steps.csv"
FAMILY_LETTERS: Final = 44
"""Sources are grouped by so many leading letters; what follows names tables and files."""


@dataclass(frozen=True, slots=True)
class Score:
    """Relative errors (predicted / measured - 1) of one group of rows."""

    group: str
    rows: int
    mean_absolute: float
    median_absolute: float
    p90_absolute: float
    bias: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A row of the table and the run it describes."""

    row: Row
    run: TrainingRun


def runs_of(rows: Iterable[Row]) -> tuple[list[Measured], Counter[str]]:
    """What can be priced, and why the rest cannot."""
    kept: list[Measured] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        try:
            kept.append(Measured(row, read_run(row)))
        except Skipped as reason:
            skipped[str(reason)] += 1
    return kept, skipped


def score(group: str, errors: Sequence[float]) -> Score:
    """Summary of relative errors."""
    values = np.array(errors)
    absolute = np.abs(values)
    return Score(
        group=group,
        rows=len(values),
        mean_absolute=float(absolute.mean()),
        median_absolute=float(np.median(absolute)),
        p90_absolute=float(np.quantile(absolute, 0.9)),
        bias=float(np.median(values)),
    )


def grouped(kept: Sequence[Measured], errors: Sequence[float]) -> list[Score]:
    """Scores of all rows, of each source family and of each GPU with its precision."""
    groups: dict[str, list[float]] = defaultdict(list)
    for each, error in zip(kept, errors, strict=True):
        row = each.row
        groups["all"].append(error)
        groups[f"source {row['source'][:FAMILY_LETTERS]}"].append(error)
        groups[f"framework {each.run.workload.framework.name}"].append(error)
        groups[f"kind {each.run.gpu.name}"].append(error)
        groups[f"gpu {row['gpu']} {row['precision']} {row['family']}"].append(error)
    return [score(name, values) for name, values in groups.items()]


def report(table: Path, memory: Path | None, oom: Path | None, *, rows: bool) -> dict[str, Any]:
    """Everything the command prints."""
    kept, skipped = runs_of(read_rows(table))
    unmeasured = sum(each.run.step_s is None for each in kept)
    kept = [each for each in kept if each.run.step_s is not None]
    errors = [predict_run(each.run).step_s / (each.run.step_s or 1.0) - 1.0 for each in kept]
    result: dict[str, Any] = {
        "step_time": grouped(kept, errors),
        "skipped": dict(skipped) | {"step time not stated": unmeasured},
    }
    if rows:
        result["rows"] = [(each.run.name, round(error, 3)) for each, error in zip(kept, errors, strict=True)]
    judged = [each.run for each in kept if each.run.recompute_known]
    rejected = [run.name for run in judged if not predict_fits(run)]
    result["ran_but_rejected"] = {"of": len(judged), "rows": rejected}
    if memory is not None:
        measured, _ = runs_of(read_rows(memory))
        measured = [
            each for each in measured if each.run.peak_memory_bytes is not None and each.run.recompute_known
        ]
        ratios = [predict_counted_memory(each.run) / (each.run.peak_memory_bytes or 1.0) - 1.0 for each in measured]
        result["memory"] = grouped(measured, ratios)
    if oom is not None:
        failed, left_out = runs_of(read_rows(oom))
        caught = [each.run.name for each in failed if not predict_fits(each.run)]
        missed = [each.run.name for each in failed if each.run.name not in caught]
        result["oom"] = {"caught": caught, "missed": missed, "skipped": dict(left_out)}
    return result


def _print(result: dict[str, Any]) -> None:
    for part in ("step_time", "memory"):
        scores: list[Score] = result.get(part, [])
        if scores:
            print(f"{part:<70} rows   MAPE  median    p90   bias")
        for line in scores:
            errors = (
                f"{line.mean_absolute:6.1%} {line.median_absolute:6.1%} {line.p90_absolute:6.1%} {line.bias:+7.1%}"
            )
            print(f"  {line.group:<68} {line.rows:4d} {errors}")
    for part in ("skipped", "oom", "ran_but_rejected", "rows"):
        if part in result:
            print(f"{part}: {result[part]}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description="scores the cost model")
    parser.add_argument("--table", type=Path, default=OWN_TABLE)
    parser.add_argument("--memory", type=Path)
    parser.add_argument("--oom", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rows", action="store_true", help="list the error of every row")
    options = parser.parse_args(arguments)
    result = report(options.table, options.memory, options.oom, rows=options.rows)
    if options.json:
        print(json.dumps(result, default=lambda value: {name: getattr(value, name) for name in value.__slots__}))
    else:
        _print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
