"""Scores the cost model on tables of measured training steps, peak memory and runs that did not fit.

    python -m benchmarks.accuracy [--table PATH] [--memory PATH] [--oom PATH] [--json] [--rows] [--out PATH]

Without ``--table`` the project's own small table of published steps is used.  ``--out`` writes what is predicted
for each row of ``--table``, measured columns unread: id, seconds, GiB of the fullest GPU, and whether it fits.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.measured import Measured, measured_runs, runs_of, with_doubts
from benchmarks.rows import read_rows, text
from benchmarks.scores import Score, grouped, missed_aims
from benchmarks.sweeps import SweepScore, summary, sweep_scores
from cluster_models.units import GIB
from solver.run_memory import predict_counted_memory, predict_fits, predict_peak_memory
from solver.runs import predict_runs

__all__ = ["Measured", "measured_runs", "read_rows", "report", "runs_of"]

HEADROOM: Final = 0.1
"""Share of a GPU's memory that workloads leave free by default."""
OWN_TABLE: Final = Path(__file__).parent / "data" / "published_steps.csv"
OUT_COLUMNS: Final = ("id", "predicted_iter_time_s", "predicted_memory_gib", "fits")


def report(table: Path, memory: Path | None, oom: Path | None, *, rows: bool) -> dict[str, Any]:
    """Everything the command prints."""
    every, skipped = runs_of(read_rows(table))
    kept = with_doubts([each for each in every if each.run.step_s is not None])
    predictions = predict_runs([each.run for each in kept])
    errors = [prediction.step_s / each.seconds - 1.0 for each, prediction in zip(kept, predictions, strict=True)]
    result: dict[str, Any] = {"step_time": grouped(kept, errors)}
    seconds = {each.run.name: prediction.step_s for each, prediction in zip(kept, predictions, strict=True)}
    believed = [each for each in kept if not each.doubt]
    result["sweeps"] = sweep_scores(kept, seconds)
    result["sweep_summary"] = summary(result["sweeps"])
    result["sweep_summary_without_doubtful_rows"] = summary(sweep_scores(believed, seconds))
    judged = [each.run for each in kept if each.run.recompute_known]
    rejected = [run.name for run in judged if not predict_fits(run)]
    result["ran_but_rejected"] = {"of": len(judged), "rows": rejected}
    if memory is not None:
        result["memory"], result["memory_too_low"] = _memory_scores(memory)
    if oom is not None:
        result["oom"] = _out_of_memory(oom)
    result["skipped"] = dict(skipped) | {"step time not stated": len(every) - len(kept)}
    result["doubtful"] = {each.run.name: each.doubt for each in kept if each.doubt}
    result["missed_aims"] = missed_aims(
        result["step_time"],
        result.get("memory", []),
        result["sweep_summary_without_doubtful_rows"],
        rejected=len(rejected) / max(len(judged), 1),
        oom_missed=len(result.get("oom", {}).get("missed", [])),
    )
    if rows:
        result["rows"] = [
            {"id": each.run.name, "error": round(error, 3), "doubt": each.doubt, "assumed": list(each.run.assumed)}
            for each, error in zip(kept, errors, strict=True)
        ]
    return result


def _memory_scores(table: Path) -> tuple[list[Score], dict[str, Any]]:
    """Errors of peaks, and how many were predicted too low by more than the planner's default head-room."""
    every, _ = runs_of(read_rows(table))
    measured = with_doubts([each for each in every if each.run.peak_memory_bytes and each.run.recompute_known])
    ratios = [predict_counted_memory(each.run) / (each.run.peak_memory_bytes or 1.0) - 1.0 for each in measured]
    low = [each.run.name for each, ratio in zip(measured, ratios, strict=True) if ratio < -HEADROOM]
    return grouped(measured, ratios), {"of": len(ratios), "worst": round(min(ratios, default=0.0), 3), "rows": low}


def _out_of_memory(table: Path) -> dict[str, Any]:
    failed, left_out = runs_of(read_rows(table))
    failed = with_doubts(failed)
    caught = {each.run.name for each in failed if not predict_fits(each.run)}
    return {
        "caught": sorted(caught),
        "missed": [each.run.name for each in failed if each.run.name not in caught and not each.doubt],
        "doubtful_missed": [each.run.name for each in failed if each.run.name not in caught and each.doubt],
        "skipped": dict(left_out),
    }


def write_predictions(table: Path, out: Path) -> int:
    """Write a line for each row of ``table``, empty where it cannot be priced; returns how many could."""
    kept, _ = runs_of(read_rows(table))
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
        for row in read_rows(table):
            writer.writerow([text(row, "id"), *found.get(text(row, "id"), ("", "", ""))])
    return len(found)


def _print(result: dict[str, Any]) -> None:
    for part in ("step_time", "memory"):
        scores: list[Score] = result.get(part, [])
        if scores:
            print(f"{part:<80} rows   MAPE  median    p90   bias")
        for line in scores:
            errors = (
                f"{line.mean_absolute:6.1%} {line.median_absolute:6.1%} {line.p90_absolute:6.1%} {line.bias:+7.1%}"
            )
            print(f"  {line.group:<78} {line.rows:4d} {errors}")
    _print_sweeps(result)
    for part in ("skipped", "memory_too_low", "oom", "ran_but_rejected"):
        if part in result:
            print(f"{part}: {result[part]}")
    for name, doubt in result["doubtful"].items():
        print(f"doubtful {name}: {doubt}")
    for row in result.get("rows", ()):
        print(f"row {row['id']:<8} {row['error']:+7.1%}  {'; '.join(row['assumed'])}")
    for missed in result["missed_aims"]:
        print(f"missed: {missed}")


def _print_sweeps(result: dict[str, Any]) -> None:
    sweeps: list[SweepScore] = result["sweeps"]
    if not sweeps:
        return
    print(f"{'sweeps':<60} rows  regret  best is our  Spearman  Kendall")
    for line in sorted(sweeps, key=lambda each: -each.regret):
        figures = f"{line.regret:6.1%} {line.best_rank:9d}. {line.spearman:12.2f} {line.kendall:8.2f}"
        print(f"  {line.sweep:<58} {line.rows:4d}  {figures}")
    for name in ("sweep_summary", "sweep_summary_without_doubtful_rows"):
        if (line := result[name]) is not None:
            print(
                f"{name.replace('_', ' ')}: {line.sweeps} sweeps, regret mean {line.mean_regret:.1%} worst "
                f"{line.worst_regret:.1%}, best among our first three in {line.best_in_short_list:.0%}, median "
                f"Spearman {line.median_spearman:.2f}, Kendall {line.median_kendall:.2f}"
            )


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description="scores the cost model")
    parser.add_argument("--table", type=Path, default=OWN_TABLE)
    parser.add_argument("--memory", type=Path)
    parser.add_argument("--oom", type=Path)
    parser.add_argument("--out", type=Path, help="write predictions for every row of the table here, and no report")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rows", action="store_true", help="list the error of every row and what it assumes")
    options = parser.parse_args(arguments)
    if options.out is not None:
        print(f"{write_predictions(options.table, options.out)} rows predicted")
        return 0
    result = report(options.table, options.memory, options.oom, rows=options.rows)
    if options.json:
        print(json.dumps(result, default=_plain))
    else:
        _print(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
