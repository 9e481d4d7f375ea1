"""Fits the parameters of the cost model to a table of measured training steps.

    python -m benchmarks.fit --table PATH [--framework NAME ...] [--kind PREFIX ...] [--parameters a,b] [--dry-run]

Prints every value with its 90 % interval (``--untold``: also what no row tells) and the error by family before
the fit, after it, and held out: of each group of rows as predicted from all other groups.  Without ``--dry-run`` it
writes fitted.toml beside the estimates, and where no row was left out, the spread of the held-out errors by family
to confidence.toml.  With ``--framework`` alone only parameters of frameworks are fitted, with ``--kind``
alone only those of GPU kinds, from the rows that they select.
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
from benchmarks.fitted_files import confidence_text, fitted_text
from benchmarks.measured import Measured, measured_runs
from solver.costs.calibration import PARAMETERS, Owner, kind_family, shipped_parameters
from solver.fitting.families import HeldOut, families_of
from solver.fitting.fit import fit
from solver.fitting.report import FitOptions, FitReport, estimated_prior
from solver.fitting.unseen import unseen_errors

DATA: Final = Path(__file__).parents[1] / "solver" / "costs" / "data"


def blocks_of(measured: Sequence[Measured]) -> list[str]:
    """The rows that are held out together: a group, or where it alone tells of its GPU kind or framework, a part.

    Without the whole group its kind or framework would be a new one, which has an interval of its own; so such a
    group is held out by tensor and pipeline size.
    """
    groups = [each.group for each in measured]
    telling: dict[str, set[str]] = defaultdict(set)
    for each, group in zip(measured, groups, strict=True):
        telling[kind_family(each.run.gpu)].add(group)
        telling[each.run.workload.framework.name].add(group)
    blocks = []
    for each, group in zip(measured, groups, strict=True):
        degrees = each.run.configuration.degrees
        alone = 1 in (len(telling[kind_family(each.run.gpu)]), len(telling[each.run.workload.framework.name]))
        blocks.append(f"{group} tp{degrees.tensor} pp{degrees.pipeline}" if alone else group)
    return blocks


def select(table: Path, frameworks: Sequence[str] | None, kinds: Sequence[str] | None) -> list[Measured]:
    """The undoubted rows with a measured step, of these frameworks and of GPU kinds whose name starts so."""
    return [
        each
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
    return [name for name, parameter in PARAMETERS.items() if parameter.owner in owners]


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


def held_out(report: FitReport, measured: Sequence[Measured]) -> HeldOut:
    """log(measured / predicted) of rows without their block, and as if their GPU kind or framework were new."""
    runs = [each.run for each in measured]
    kinds, frameworks = (unseen_errors(runs, report.parameters, owner) for owner in (Owner.GPU, Owner.FRAMEWORK))
    return HeldOut(-np.array(report.errors_without[0]), kinds, frameworks)


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
        "held out": report.errors_without[0],
    }
    print("\n".join(error_table(measured, columns)))
    print("\n".join(report.warnings))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit", description="fits the cost model")
    parser.add_argument("--table", type=Path, help="default: the published steps shipped here, without writing")
    parser.add_argument("--framework", action="append", help="only rows of this generation; repeatable")
    parser.add_argument("--kind", action="append", help="only GPU kinds whose name starts so; repeatable")
    parser.add_argument("--parameters", help="comma-separated names; default: all of the owners selected")
    parser.add_argument("--untold", action="store_true", help="list also what the data do not tell")
    parser.add_argument("--dry-run", action="store_true", help="write nothing")
    options = parser.parse_args(arguments)
    measured = select(options.table or OWN_TABLE, options.framework, options.kind)
    shipped = shipped_parameters()
    filtered = options.framework or options.kind or options.parameters
    report = fit(
        [each.run for each in measured],
        chosen_parameters(options.parameters, options.framework, options.kind),
        groups=[each.group for each in measured],
        without=(blocks_of(measured),),
        options=FitOptions(
            prior_of=estimated_prior,
            start=shipped if filtered else None,
            kind_name=kind_family,
            source=f"published training steps, {len(measured)} rows at the last fit",
        ),
    )
    _print(report, measured, everything=options.untold)
    if options.table and not options.dry_run:
        (DATA / "fitted.toml").write_text(fitted_text(report.parameters), encoding="utf-8")
        if not options.framework and not options.kind:
            known = families_of([each.run for each in measured], held_out(report, measured))
            (DATA / "confidence.toml").write_text(confidence_text(known), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
