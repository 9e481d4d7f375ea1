"""The report on serving as a page of the manual."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.accuracy_page import percent, table
from benchmarks.serving_choice import Choice
from benchmarks.serving_fit import OUT as RATES
from solver.serving.rates import held_out_spreads

if TYPE_CHECKING:
    from benchmarks.scores import Score
    from benchmarks.serving_accuracy import Report

LEAST_GROUP: Final = 10
"""Rows of a group that gets a line."""
HEAD: Final = """\
# How accurate serving predictions are

`python -m benchmarks.serving_accuracy --table FILE --page docs/serving_accuracy.md` writes this page from measured
runs; `python -m benchmarks.serving_fit --table FILE` fits the rates and measures errors on groups held out.
Errors are predicted / measured - 1. "Open" rows leave out what decides their time (the number of split workers,
whether tokens were predicted, a load limited by a benchmark's latency rules): the rates are not fitted to them, and
they are priced with what the fully stated rows of the same deployments have.
"""
HELD_OUT: Final = """\
## Groups held out

What a prediction is worth for something that was not measured: the rates are fitted to two thirds of the groups and
scored on the rest, three times. A sweep is one worker shape of one model on one kind of GPU under one generation, a
load one pair of lengths and one concurrency of a sweep. Intervals are made of the lines of sweeps, of models and
of pairs of engine and GPU.
"""
PERCENTILES: Final = """\
These benchmarks send ten requests for each one in flight, the first of these all at once, so that the last
hundredth of all first tokens is the last tenth of that start: C prompts in full steps, one after the other
(`solver/serving/starting.py`; tests hold it to the simulation of such a trace). Plans and predictions are of the
steady load. Part of the rest is no queue: 45 % of the aggregated SGLang rows note 20 to 91 s beside medians below
2 s, at any load, as where the first requests wait for kernels to be compiled.
"""
CHOICE: Final = """\
Rows of one model, GPU kind, generation, format, lengths and concurrency form a group; the loss is what the
configuration of the best predicted figure measured, against the best measured one. Fewer GPUs win easily, so most
lines compare equal numbers. With sweeps held out, the fit saw other configurations of the group at most.
"""
CONTRADICTED: Final = """\
Two bounds of arithmetic that hold for whatever engine, model and GPU, so that no prediction enters
(`benchmarks/serving_contradictions.py`): requests/s x 2 x parameters active in the layers x tokens of a request
lies below the dense peak of the GPUs; and of two runs of one configuration the one under more load takes no less
time per token than the other, and no more than that times the ratio of loads, as whoever serves C at once can serve
K in turns. A third is allowed. Which row of such a sweep is wrong cannot be told, so none of it is believed or
fitted to, or counted in the lines of engines, GPUs, models and formats.
"""
FITTED: Final = """\
## All rows

The rates were fitted to the rows that state their configuration, repeats of one configuration counting as one.
"""


def write_page(report: Report, page: Path) -> None:
    """Write ``report`` to ``page``."""
    parts = [HEAD, HELD_OUT, _held_out(), FITTED]
    for figure, scores in report.scores.items():
        parts += [f"### {figure.capitalize()}\n", _scores(scores)]
    parts += ["## 99th percentiles\n", PERCENTILES, _scores(report.percentiles)]
    parts += ["## Choice\n", _choices(report), "## Intervals\n", _coverage(report), _left(report)]
    page.write_text("\n".join(part.rstrip("\n") + "\n" for part in parts), encoding="utf-8")


def _held_out() -> str:
    names = {"token": "time per output token", "first_token": "time to first token", "throughput": "throughput"}
    lines = [
        [
            f"{each.group}, {names[each.figure]}",
            str(each.rows),
            percent(each.median_error),
            percent(each.mean_error),
            percent(each.p90_error),
            percent(each.bias),
            f"{percent(each.all_median_error)} / {percent(each.all_mean_error)} of {each.all_rows}",
        ]
        for each in held_out_spreads()
    ]
    head = [
        "held out, figure",
        "rows",
        "median",
        "mean",
        "90th percentile",
        "bias",
        "median / mean with contradicted rows",
    ]
    return table(head, lines)


def _scores(scores: list[Score]) -> str:
    lines = [
        [
            line.group,
            str(line.rows),
            percent(line.median_absolute),
            percent(line.mean_absolute),
            percent(line.p90_absolute),
            percent(line.bias),
        ]
        for line in scores
        if line.rows >= LEAST_GROUP
    ]
    return table(["rows", "number", "median", "mean", "90th percentile", "bias"], lines)


def _choices(report: Report) -> str:
    held_out = [Choice(**{name: each[name] for name in Choice.__slots__}) for each in _held_out_choices()]
    lines = [
        [
            f"{line.kind}{words}",
            str(line.groups),
            percent(line.median_regret),
            percent(line.p90_regret),
            percent(line.near),
            percent(line.far),
        ]
        for words, choices in ((", sweeps held out", held_out), ("", report.choices))
        for line in choices
    ]
    head = ["chosen by", "groups", "median loss", "90th percentile", "within 5 %", "worse than 20 %"]
    return f"{CHOICE}\n{table(head, lines)}"


def _held_out_choices() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(RATES.read_text(encoding="utf-8")).get("choice", [])
    return found


def _coverage(report: Report) -> str:
    lines = [[each.figure, str(each.rows), percent(each.share)] for each in report.coverage]
    words = "Four rows in five should lie within their interval; rows fitted to are among them, so more do."
    return f"{words}\n\n{table(['figure', 'rows', 'within'], lines)}"


def _left(report: Report) -> str:
    lines = [[reason, str(number)] for reason, number in sorted(report.skipped.items())]
    broken = [[each.engine, each.reason, str(each.rows), str(each.believed_else)] for each in report.contradicted]
    return (
        f"## Contradicted\n\n{CONTRADICTED}\n"
        f"{table(['engine', 'what', 'rows', 'of them state their configuration'], broken)}\n\n"
        f"## Left out\n\n{len(report.rejected)} rows that ran are predicted not to fit. "
        "Rows that cannot be priced:\n\n"
        f"{table(['reason', 'rows'], lines)}"
    )
