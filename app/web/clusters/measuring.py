"""Pairs to measure next, for people: which and why, how long it takes, and the scripts that do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode

from app.exports.measuring import Launcher, scripts
from app.exports.options import Options
from app.presentation.measuring import TITLES, MeasuringReport, PairRow, measuring_report, start_command
from cluster_models.cluster.topology import Node
from cluster_models.errors import InvalidConfiguration
from solver.measuring.choose import MeasuringPlan

MOST_ROWS: Final = 100
MOST_SCRIPT: Final = 20_000
"""Characters of a script that the page shows."""


@dataclass(frozen=True, slots=True)
class Script:
    """Script that one launcher runs; where it cannot be written, ``refusal`` says why."""

    title: str
    words: str
    command: str
    address: str
    file_name: str
    text: str
    cut: bool
    others: tuple[str, ...]
    refusal: str


@dataclass(frozen=True, slots=True)
class MeasuringPage:
    """A measuring plan as words and a table."""

    report: MeasuringReport
    rows: tuple[PairRow, ...]
    more_rows: int
    scripts: tuple[Script, ...]


def measuring_page(
    plan: MeasuringPlan, nodes: Sequence[Node], *, cluster: str, query: Mapping[str, str], options: Options
) -> MeasuringPage:
    """The page of a measuring plan for a cluster of ``nodes``; links to scripts carry ``query``."""
    report = measuring_report(plan, nodes)
    return MeasuringPage(
        report=report,
        rows=report.rows[:MOST_ROWS],
        more_rows=max(0, len(report.rows) - MOST_ROWS),
        scripts=tuple(_script(plan, launcher, cluster, query, options) for launcher in TITLES)
        if plan.pairs
        else (),
    )


def file_name(launcher: Launcher) -> str:
    """Name of the download of a launcher's scripts."""
    return "measure.zip" if launcher is Launcher.KUBERNETES else "measure.sh"


def _script(
    plan: MeasuringPlan, launcher: Launcher, cluster: str, query: Mapping[str, str], options: Options
) -> Script:
    title, words = TITLES[launcher]
    address = f"/clusters/{quote(cluster, safe='')}/measure/{launcher}"
    if query:
        address += f"?{urlencode(query)}"
    try:
        files = scripts(plan, launcher, options)
    except InvalidConfiguration as error:
        refusal = ": ".join((str(error.value), "; ".join(filter(None, (error.problem, error.remedy)))))
        return Script(title, words, "", "", "", "", cut=False, others=(), refusal=refusal)
    text = files[0].text
    return Script(
        title,
        words,
        start_command(launcher, files[0].name),
        address,
        file_name(launcher),
        text[:MOST_SCRIPT],
        cut=len(text) > MOST_SCRIPT,
        others=tuple(file.name for file in files[1:]),
        refusal="",
    )
