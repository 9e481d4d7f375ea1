"""Fits the parameters of the cost model to a table of measured training steps.

    python -m benchmarks.fit --table PATH [--framework NAME ...] [--kind PREFIX ...] [--parameters a,b] [--dry-run]

Prints every value with its 90 % interval (``--untold``: also what no row tells) and the error by family before
the fit, after it, and held out: of each group of rows as predicted from all other groups.  Without ``--dry-run`` it
writes fitted.toml beside the estimates, and where no row was left out, the spread of the held-out errors by family
to confidence.toml and how often intervals hold to ``benchmarks/data/coverage.csv``; rows of ``--unfitted`` tables
count there without being fitted.  ``--confidence`` renews these two files alone, for the parameters as shipped, and
takes a tenth of the time.  With ``--framework`` alone only parameters of frameworks are fitted, with
``--kind`` alone only those of GPU kinds, from the rows that they select.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.accuracy import OWN_TABLE
from benchmarks.confidence import Held, held_as_shipped, omissions, write_confidence
from benchmarks.coverage import FOUND, coverage_text, write_coverage
from benchmarks.fitted_files import fitted_text
from benchmarks.measured import Measured, measured_runs
from benchmarks.step_fit import fit
from solver.costs.calibration import PARAMETERS, Owner, kind_family, shipped_parameters
from solver.costs.confidence import Novelty
from solver.fitting.report import FitOptions, FitReport, estimated_prior
from solver.fitting.unknowns import COMMON_FACTOR

DATA: Final = Path(__file__).parents[1] / "solver" / "costs" / "data"


def select(tables: Sequence[Path], frameworks: Sequence[str] | None, kinds: Sequence[str] | None) -> list[Measured]:
    """The undoubted measured rows of ``tables``, of these frameworks and of GPU kinds whose name starts so."""
    return [
        each
        for table in tables
        for each in measured_runs(table)
        if not each.doubt
        and (not frameworks or each.run.workload.framework.name in frameworks)
        and (not kinds or each.run.gpu.name.startswith(tuple(kinds)))
    ]


def chosen_parameters(
    names: str | None, frameworks: Sequence[str] | None, kinds: Sequence[str] | None
) -> list[str]:
    """The parameters to fit: those named, else those of the owners that the filters speak of."""
    if names is not None:
        return names.split(",")
    owners = {Owner.FRAMEWORK} if frameworks and not kinds else {Owner.GPU} if kinds and not frameworks else Owner
    return [name for name, each in PARAMETERS.items() if each.owner in owners and name != COMMON_FACTOR]


def error_table(measured: Sequence[Measured], errors: Mapping[str, Sequence[float]]) -> list[str]:
    """Mean absolute relative errors by GPU kind, framework and both: a head, then a line each."""
    groups: dict[str, list[int]] = defaultdict(list)
    for i, each in enumerate(measured):
        kind, framework = kind_family(each.run.gpu), each.run.workload.framework.name
        sparse = "moe" if each.run.architecture.experts else "dense"
        for name in ("all", f"kind {kind}", f"framework {framework}", f"{framework} {kind} {sparse}"):
            groups[name].append(i)
    lines = [f"{'':<50} rows " + " ".join(f"{name:>14}" for name in errors)]
    for name, rows in sorted(groups.items()):
        figures = [np.abs(np.expm1(np.array(values)[rows])).mean() for values in errors.values()]
        lines.append(f"{name:<50} {len(rows):4d} " + " ".join(f"{figure:14.1%}" for figure in figures))
    return lines


def _print(report: FitReport, measured: Sequence[Measured], *, everything: bool) -> None:
    for each in report.unknowns:
        value = each.fitted
        told = f"{value.steps:4d} rows" if each.told else "not told by the data"
        if not each.told and not everything:
            continue
        print(
            f"{each.unknown!s:<52} {value.value:10.3g}  [{value.low:.3g}, {value.high:.3g}]  "
            f"was {each.prior:.3g}  {told}"
        )
    print()
    columns = {
        "MAPE before": report.errors_before,
        "after": report.errors_after,
        "held out": report.errors_held_out,
    }
    print("\n".join(error_table(measured, columns)))
    print("\n".join(report.warnings))


def _fitted(measured: Sequence[Measured], options: argparse.Namespace) -> FitReport:
    shipped = shipped_parameters()
    filtered = options.framework or options.kind or options.parameters
    source = f"published training steps, {len(measured)} rows at the last fit"
    return fit(
        [each.run for each in measured],
        chosen_parameters(options.parameters, options.framework, options.kind),
        groups=[each.group for each in measured],
        without=[*omissions(measured).values()],
        options=FitOptions(
            prior_of=estimated_prior,
            start=shipped if filtered else None,
            kind_name=kind_family,
            source=shipped.source if filtered else source,
        ),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit", description="fits the cost model")
    parser.add_argument(
        "--table",
        type=Path,
        action="append",
        help="repeatable; default: the published steps shipped here, not written",
    )
    parser.add_argument("--framework", action="append", help="only rows of this generation; repeatable")
    parser.add_argument("--kind", action="append", help="only GPU kinds whose name starts so; repeatable")
    parser.add_argument("--parameters", help="comma-separated names; default: all of the owners selected")
    parser.add_argument(
        "--unfitted", type=Path, action="append", help="rows that only test: they widen intervals; repeatable"
    )
    parser.add_argument(
        "--confidence", action="store_true", help="keep the parameters, renew intervals and their coverage alone"
    )
    parser.add_argument("--untold", action="store_true", help="list also what the data do not tell")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    measured = select(options.table or [OWN_TABLE], options.framework, options.kind)
    writes = options.table and not options.dry_run
    if options.confidence:
        held = held_as_shipped(measured)
    else:
        report = _fitted(measured, options)
        without = dict(zip(Novelty, report.errors_without, strict=True))
        held = Held(measured, report.parameters, report.errors_held_out, without)
        _print(report, measured, everything=options.untold)
        if writes:
            (DATA / "fitted.toml").write_text(fitted_text(report.parameters), encoding="utf-8")
    if writes and not options.framework and not options.kind:
        found = write_confidence(held, select(options.unfitted or [], None, None), DATA / "confidence.toml")
        write_coverage(found, FOUND)
        print(coverage_text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
