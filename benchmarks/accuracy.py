"""Scores the cost model on tables of measured training steps, peak memory and runs that did not fit.

    python -m benchmarks.accuracy --table PATH [--memory PATH] [--oom PATH] [--json] [--rows]

Without ``--table`` the project's own small table of published steps is used.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.step_formula import calibration_for, predict
from benchmarks.training_rows import Case, Row, Skipped, read_case
from solver.costs.memory import stage_memory

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


def read_rows(path: Path) -> list[Row]:
    """All rows of a table."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cases(rows: Iterable[Row]) -> tuple[list[Case], Counter[str]]:
    """What can be priced, and why the rest cannot."""
    kept: list[Case] = []
    skipped: Counter[str] = Counter()
    for row in rows:
        try:
            kept.append(read_case(row))
        except Skipped as reason:
            skipped[str(reason)] += 1
    return kept, skipped


def memory_bytes(case: Case) -> float:
    """Predicted peak of the fullest pipeline rank."""
    parts = stage_memory(
        case.batch,
        case.layers,
        architecture=case.architecture,
        workload=case.workload,
        gpu=case.gpu,
        micro_batches=np.array([case.micro_batches]),
        calibration=calibration_for(case),
    )
    return float(parts.total_bytes.max())


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


def grouped(kept: Sequence[Case], errors: Sequence[float]) -> list[Score]:
    """Scores of all rows, of each source family and of each GPU with its precision."""
    groups: dict[str, list[float]] = defaultdict(list)
    for case, error in zip(kept, errors, strict=True):
        groups["all"].append(error)
        groups[f"source {case.row['source'][:FAMILY_LETTERS]}"].append(error)
        groups[f"kind {case.gpu.name}"].append(error)
        groups[f"gpu {case.row['gpu']} {case.row['precision']} {case.row['family']}"].append(error)
        megatron = "dgxc" in case.row["source"] or "NeMo" in case.row["source"] or "Megatron" in case.row["source"]
        if megatron and case.row["precision"] == "bf16" and case.row["gpu"] in ("H100", "A100-80", "A100-40"):
            groups["Megatron/NeMo on H100 and A100, bf16"].append(error)
    return [score(name, values) for name, values in groups.items()]


def report(table: Path, memory: Path | None, oom: Path | None, *, rows: bool) -> dict[str, Any]:
    """Everything the command prints."""
    kept, skipped = cases(read_rows(table))
    unmeasured = sum(case.step_s is None for case in kept)
    kept = [case for case in kept if case.step_s is not None]
    errors = [predict(case).step_s / (case.step_s or 1.0) - 1.0 for case in kept]
    result: dict[str, Any] = {
        "step_time": grouped(kept, errors),
        "skipped": dict(skipped) | {"step time not stated": unmeasured},
    }
    if rows:
        result["rows"] = [(case.row["id"], round(error, 3)) for case, error in zip(kept, errors, strict=True)]
    judged = [case for case in kept if case.policy_known]
    rejected = [case.row["id"] for case in judged if memory_bytes(case) > case.gpu.memory_bytes]
    result["ran_but_rejected"] = {"of": len(judged), "rows": rejected}
    if memory is not None:
        measured, _ = cases(read_rows(memory))
        measured = [case for case in measured if case.memory_bytes is not None and case.policy_known]
        result["memory"] = grouped(
            measured, [memory_bytes(case) / (case.memory_bytes or 1.0) - 1.0 for case in measured]
        )
    if oom is not None:
        failed, left_out = cases(read_rows(oom))
        caught = [case.row["id"] for case in failed if memory_bytes(case) > case.gpu.memory_bytes]
        missed = [case.row["id"] for case in failed if case.row["id"] not in caught]
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
