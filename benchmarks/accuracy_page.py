"""The report on accuracy as a page of the manual."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import matplotlib as mpl
import numpy as np

mpl.use("svg")
from matplotlib import pyplot as plt

from benchmarks.placement_charts import STYLE, save_figure
from benchmarks.scores import AIM_MEMORY, AIM_STEP
from solver.costs.confidence import held_out_families

if TYPE_CHECKING:
    from benchmarks.accuracy import Report, RowError
    from benchmarks.scores import Score

FEWEST_ROWS: Final = 3
"""Of a framework generation that gets a line in the figure."""
COLOUR: Final = "#0b6e4f"
HEAD: Final = """\
# How accurate predictions are

`python -m benchmarks.accuracy --page docs/accuracy.md` writes this page; `--table`, `--memory` and `--oom` name
tables of measured steps, peaks and failures ([their columns](calibration.md#scores)). Errors are
predicted / measured - 1. Rows that the parameters were fitted to are among them unless a section says otherwise.

![Errors of step times by framework generation](figures/accuracy.svg)
"""


def write_page(report: Report, page: Path, figure: Path, sections: Sequence[str] = ()) -> None:
    """Write ``report`` to ``page`` with its ``figure``; ``sections`` follow, each with its own heading."""
    draw_errors(report.rows or [], figure)
    parts = [HEAD, *_worst(report), *_steps(report), *_memory(report), *_choices(report), _held_out(), *sections]
    page.write_text("\n".join(part.rstrip("\n") + "\n" for part in parts), encoding="utf-8")


def table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; the first column is text, others are figures."""
    head = [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(columns) - 1)}"]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)])


def percent(share: float) -> str:
    """A share in whole percent, or with a decimal below ten."""
    return f"{100 * share:.1f} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def draw_errors(rows: Sequence[RowError], path: Path) -> None:
    """For each framework generation the median of its errors and the range of eight rows in ten."""
    errors: Mapping[str, list[float]] = defaultdict(list)
    for row in rows:
        if not row.doubt:
            errors[row.framework].append(100.0 * row.error)
    names = sorted((name for name in errors if len(errors[name]) >= FEWEST_ROWS), reverse=True)
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(7.5, 0.25 * len(names) + 1.0))
        for place, name in enumerate(names):
            low, middle, high = np.quantile(errors[name], (0.1, 0.5, 0.9))
            axis.plot([low, high], [place, place], color=COLOUR, linewidth=3, alpha=0.45)
            axis.plot([middle], [place], marker="o", markersize=4, color=COLOUR)
        axis.axvline(0.0, color="#8a8a8a", linewidth=0.8)
        axis.set_yticks(range(len(names)), [f"{name} ({len(errors[name])})" for name in names])
        axis.set_xlabel("error of the step time, %: median and 10th to 90th percentile")
        figure.tight_layout()
        save_figure(figure, path)


def _worst(report: Report) -> list[str]:
    """Table of the largest errors, before all that is predicted well."""
    off = [
        (f"{what} of {line.group}", str(line.rows), percent(line.mean_absolute), percent(line.bias))
        for what, scores, aim in (("steps", report.step_time, AIM_STEP), ("peaks", report.memory or [], AIM_MEMORY))
        for line in sorted(scores, key=lambda line: -line.mean_absolute)
        if line.group.startswith("framework") and line.mean_absolute > aim
    ]
    parts = ["## What is off most", table(("mean error above the aim of 8 %", "rows", "mean", "bias"), off)]
    if report.sweep_summary_without_doubtful_rows is not None:
        summary = report.sweep_summary_without_doubtful_rows
        parts.append(
            f"In the worst of {summary.sweeps} sweeps the configuration that we would choose is "
            f"{percent(summary.worst_regret)} slower than the measured best. The mean over all is "
            f"{percent(summary.mean_regret)}, without that one {percent(summary.mean_regret_without_worst)}."
        )
    if report.oom is not None:
        missed = len(report.oom.missed) + len(report.oom.doubtful_missed)
        parts.append(
            f"{missed} configurations that failed are predicted to fit; not all sources tell those that ran out of "
            "memory from those that crashed."
        )
    return parts


def _steps(report: Report) -> list[str]:
    return ["## Step time", _scores(report.step_time)]


def _scores(scores: Sequence[Score]) -> str:
    lines = [
        (
            line.group,
            str(line.rows),
            percent(line.mean_absolute),
            percent(line.median_absolute),
            percent(line.p90_absolute),
            percent(line.bias),
        )
        for line in scores
        if line.group.startswith(("all", "framework"))
    ]
    return table(("rows of", "rows", "mean", "median", "90th percentile", "bias"), lines)


def _memory(report: Report) -> list[str]:
    parts = []
    if report.memory:
        parts += ["## Peak memory", _scores(report.memory)]
    rejected, failed = report.ran_but_rejected, report.oom
    parts.append(
        f"{len(rejected.rows)} of {rejected.of} configurations that ran "
        f"({percent(len(rejected.rows) / max(rejected.of, 1))}) are predicted not to fit, without any head-room."
    )
    if failed is not None:
        missed = len(failed.missed) + len(failed.doubtful_missed)
        caught = len(failed.caught) + sum(failed.skipped.values())
        parts.append(
            f"{caught} of {caught + missed} configurations that failed are rejected, "
            f"{sum(failed.skipped.values())} of them because they cannot be laid out at all."
        )
    return parts


def _choices(report: Report) -> list[str]:
    best, every = report.sweep_summary_without_doubtful_rows, report.sweep_summary
    columns = [each for each in (every, best) if each is not None]
    if not columns:
        return []
    lines = [
        ("slower than the measured best, mean", *(percent(each.mean_regret) for each in columns)),
        ("the same without the worst sweep", *(percent(each.mean_regret_without_worst) for each in columns)),
        ("the same, worst", *(percent(each.worst_regret) for each in columns)),
        ("measured best among our first three", *(percent(each.best_in_short_list) for each in columns)),
        ("median rank correlation (Spearman)", *(f"{each.median_spearman:.2f}" for each in columns)),
        ("sweeps", *(str(each.sweeps) for each in columns)),
    ]
    head = ("the configuration that we would choose", "all rows", "without doubtful rows")[: len(columns) + 1]
    return ["## Choices inside sweeps", table(head, lines)]


def _held_out() -> str:
    lines = [
        (family.name, str(family.spread.runs), *(f"{100 * (np.exp(each) - 1):+.0f} %" for each in ends))
        for family in held_out_families()
        for ends in [(family.spread.p10, family.spread.p50, family.spread.p90)]
    ]
    return "\n".join(
        [
            "## Runs that were not fitted",
            "",
            "Measured over predicted, each run predicted without its own group: what intervals are made from.",
            "",
            table(("family", "runs", "10th percentile", "median", "90th percentile"), lines),
        ]
    )
