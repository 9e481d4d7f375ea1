"""Errors of step times by framework and by source, each predicted without its own runs.

    python -m benchmarks.held_out --table PATH [--table PATH ...] [--unfitted PATH ...] [--rows]

Around the shipped parameters the fit is repeated without a framework, whose parameters are then the defaults of one
that nobody measured, without a source, and without a sweep (docs/calibration.md, "Held out"), leaving doubted rows
out.  Rows of ``--unfitted`` tables are predicted alike, but no other row is predicted from them: they would pull
parameters that were not fitted to them.  ``--rows`` lists every row.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.fit import select
from benchmarks.left_out_frameworks import Knowledge
from benchmarks.measured import Measured
from benchmarks.scores import source_of
from solver.candidates import FloatArray
from solver.costs.calibration import Owner
from solver.fitting.left_out import Omission, errors_without


@dataclass(frozen=True, slots=True)
class HeldOutErrors:
    """Predicted / measured - 1 of each row (r,): as shipped, and without its framework, source and sweep."""

    shipped: FloatArray
    framework: FloatArray
    source: FloatArray
    sweep: FloatArray


def held_out_errors(fitted: Sequence[Measured], unfitted: Sequence[Measured] = ()) -> HeldOutErrors:
    """Errors of believed rows with a measured step, those that were fitted first."""
    measured = [*fitted, *unfitted]
    problem, solution = Knowledge(measured).optimum
    problem = replace(problem, weights=np.where(np.arange(len(measured)) < len(fitted), problem.weights, 0.0))
    frameworks = [each.run.workload.framework.name for each in measured]

    def without(labels: Sequence[str], *, unseen: bool = False) -> FloatArray:
        column = np.array(labels)
        omissions = []
        for label in sorted(set(labels)):
            rows = np.flatnonzero(column == label)
            omissions.append(Omission(rows, rows, frozenset({(Owner.FRAMEWORK, label)} if unseen else ())))
        return np.asarray(np.expm1(errors_without(problem, solution, omissions)))

    return HeldOutErrors(
        shipped=np.expm1(solution.residuals),
        framework=without(frameworks, unseen=True),
        source=without([source_of(each.row) for each in measured]),
        sweep=without([each.group for each in measured]),
    )


def _print(measured: Sequence[Measured], errors: HeldOutErrors, *, rows: bool) -> None:
    groups: dict[str, list[int]] = defaultdict(list)
    for row, each in enumerate(measured):
        sort = "sparse" if each.run.architecture.experts else "dense"
        for name in ("", f"framework {each.run.workload.framework.name}", f"source {source_of(each.row)}"):
            groups[f"{name} {sort}" if name else "all"].append(row)
    columns = (errors.shipped, errors.framework, errors.source, errors.sweep)
    print(f"{'mean, and median without the framework and source':<64} rows shipped framework  source   sweep")

    def place(name: str) -> tuple[str, float]:
        """All first, then frameworks, then sources, each from the best predicted without it to the worst."""
        kind = name.partition(" ")[0]
        column = errors.source if kind == "source" else errors.framework
        return kind, float(np.abs(column[groups[name]]).mean()) if kind != "all" else 0.0

    for name in sorted(groups, key=place):
        members = groups[name]
        means = " ".join(f"{np.abs(column[members]).mean():8.1%}" for column in columns)
        medians = " ".join(f"{np.median(np.abs(column[members])):7.1%}" for column in columns[1:3])
        print(f"{name:<64} {len(members):4d} {means}  {medians} {np.median(errors.source[members]):+7.1%}")
    if rows:
        for row, each in enumerate(measured):
            print(each.run.name, " ".join(f"{column[row]:+7.1%}" for column in columns))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.held_out", description="errors of groups held out")
    parser.add_argument("--table", type=Path, action="append", required=True, help="measured steps; repeatable")
    parser.add_argument(
        "--unfitted", type=Path, action="append", help="steps that the parameters never saw; repeatable"
    )
    parser.add_argument("--rows", action="store_true", help="list every row")
    options = parser.parse_args(arguments)
    fitted, unfitted = select(options.table, None, None), select(options.unfitted or [], None, None)
    _print([*fitted, *unfitted], held_out_errors(fitted, unfitted), rows=options.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
