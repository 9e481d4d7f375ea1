"""How often intervals hold the measured step where they never saw the likes of a run.

    python -m benchmarks.coverage [--table PATH] [--json]

Prints the coverage that the last fit found (``python -m benchmarks.fit`` writes it): each framework, GPU kind, pair
of them, model and source held out in turn, its runs predicted without it, with the interval that the others give.
With ``--table`` it is that of the shipped intervals on the rows of a table, best one that was not fitted.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.measured import Measured, measured_runs
from benchmarks.scores import source_of
from solver.costs.calibration import kind_family
from solver.costs.confidence import LEVEL, Novelty, confidence_of
from solver.fitting.families import Families, Judged, judged, subject_of
from solver.fitting.unseen import HeldOut, model_of
from solver.runs import predict_runs

FOUND: Final = Path(__file__).parent / "data" / "coverage.csv"
LEVELS: Final = (
    ("framework", Novelty.FRAMEWORK, False),
    ("GPU kind", Novelty.KIND, False),
    ("framework and GPU kind", Novelty.BOTH, False),
    ("framework on a GPU kind", Novelty.PAIR, False),
    ("model", Novelty.MODEL, False),
    ("source", Novelty.MODEL, True),
)
"""Groups that are held out, and whether they are sources."""
ALL: Final = "all"
FEWEST_NAMES: Final = 2
"""Names without which nothing is known of how they stray."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """Runs of ``name``, which is of the sort ``held_out``, and the share of them inside their intervals.

    ``by_name``: of the line ``all``, the mean share over names, each counting once; of others the share again.
    ``width``: mean of upper over lower end.
    """

    held_out: str
    name: str
    runs: int
    inside: float
    by_name: float
    width: float


def held_out_coverage(held: Sequence[HeldOut], known: Families) -> list[Coverage]:
    """Coverage by what was held out: a line each, ``all`` first."""
    found = []
    for title, novelty, by_source in LEVELS:
        lines = defaultdict(list)
        for each in judged(held, novelty, by_source=by_source):
            lines[each.held.source if by_source else each.held.unit].append(_judgement(each, known))
        found += _coverage(title, lines)
    return found


def _judgement(each: Judged, known: Families) -> tuple[bool, float]:
    wider = known.per_doubling, known.per_overhead
    return each.is_inside(*wider), each.width(*wider)


def table_coverage(measured: Sequence[Measured]) -> list[Coverage]:
    """Coverage of the shipped intervals on measured runs, by framework, GPU kind, model and source."""
    lines: dict[str, dict[str, list[tuple[bool, float]]]] = defaultdict(lambda: defaultdict(list))
    predictions = predict_runs([each.run for each in measured])
    for each, predicted in zip(measured, predictions, strict=True):
        run, sure = each.run, confidence_of(subject_of(each.run), predicted.step_s)
        judgement = sure.step_low_s <= each.seconds <= sure.step_high_s, sure.step_high_s / sure.step_low_s
        lines["framework"][run.workload.framework.name].append(judgement)
        lines["GPU kind"][kind_family(run.gpu)].append(judgement)
        lines["model"][model_of(run.architecture)].append(judgement)
        lines["source"][source_of(each.row)].append(judgement)
    return [line for title, found in lines.items() for line in _coverage(title, found)]


def _coverage(title: str, lines: dict[str, list[tuple[bool, float]]]) -> list[Coverage]:
    def line(name: str, found: Sequence[tuple[bool, float]], by_name: float) -> Coverage:
        inside, widths = zip(*found, strict=True)
        log_width = sum(map(math.log, widths)) / len(widths)
        return Coverage(title, name, len(found), sum(inside) / len(found), by_name, math.exp(log_width))

    if not lines:
        return []
    shares = {name: sum(inside for inside, _ in found) / len(found) for name, found in lines.items()}
    every = [each for found in lines.values() for each in found]
    return [
        line(ALL, every, sum(shares.values()) / len(shares)),
        *(line(name, found, shares[name]) for name, found in sorted(lines.items())),
    ]


def found_coverage() -> list[Coverage]:
    """Result of the last fit."""
    with FOUND.open(newline="", encoding="utf-8") as file:
        return [
            Coverage(row["held_out"], row["name"], int(row["runs"]), *(float(row[each]) for each in _SHARES))
            for row in csv.DictReader(file)
        ]


_SHARES: Final = ("inside", "by_name", "width")


def write_coverage(lines: Iterable[Coverage], path: Path = FOUND) -> None:
    """Write what a fit found: equal fits give equal text."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in fields(Coverage)])
        for line in lines:
            writer.writerow(
                [line.held_out, line.name, line.runs, *(f"{getattr(line, each):.3f}" for each in _SHARES)]
            )


def sampling_errors(lines: Sequence[Coverage], held_out: str) -> tuple[float, float]:
    """Standard errors of the share of all runs and of the mean over names, as if the names were drawn at random.

    Runs of one name err together, so that only the names are independent (clusters; Cochran 1977, chapter 9).
    """
    names = [line for line in lines if line.held_out == held_out and line.name != ALL]
    if len(names) < FEWEST_NAMES:
        return math.nan, math.nan
    runs, inside = (np.array([getattr(line, each) for line in names], dtype=float) for each in ("runs", "inside"))
    strays = runs * (inside - runs @ inside / runs.sum()) / runs.sum()
    by_runs = math.sqrt(len(names) / (len(names) - 1) * float(strays @ strays))
    return by_runs, float(inside.std(ddof=1)) / math.sqrt(len(names))


def coverage_text(lines: Sequence[Coverage]) -> str:
    """The lines as a table for a terminal; behind those of all names the standard errors of both shares."""
    rows = [f"{'held out':<24} {'':<72} runs  inside  by name  width"]
    for line in lines:
        errors = sampling_errors(lines, line.held_out) if line.name == ALL else (math.nan,)
        known = "" if math.isnan(errors[0]) else "  +- {:.0%}, {:.0%}".format(*errors)
        rows.append(
            f"{line.held_out:<24} {line.name[:72]:<72} {line.runs:4d} {line.inside:7.0%} {line.by_name:8.0%} "
            f"{line.width:6.2f}{known}"
        )
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.coverage", description=f"coverage of {LEVEL:.0%} intervals"
    )
    parser.add_argument("--table", type=Path, help="score the shipped intervals on the rows of this table")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.table is None:
        lines = found_coverage()
    else:
        lines = table_coverage([each for each in measured_runs(options.table) if not each.doubt])
    print(json.dumps([asdict(line) for line in lines]) if options.json else coverage_text(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
