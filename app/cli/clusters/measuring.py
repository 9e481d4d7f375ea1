"""``meshwright measure``: the pairs to measure next, and scripts that measure them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.answers.measuring import MeasuringAnswer
from app.cli.files import is_path, read_plan, read_snapshot
from app.cli.planning.exporting import options_given, write_folder
from app.cli.terminal import bullets, console, more_line, print_text
from app.documents.reading import close_name
from app.exports.contract import Files
from app.exports.measuring import Launcher, scripts
from app.presentation.figures import plural
from app.presentation.measuring import TITLES, MeasuringReport, measuring_report, start_command
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Plan
from solver.measuring.choose import MeasuringPlan, what_to_measure

SHOWN_PAIRS: Final = 40
"""Rows of the table; ``--json`` has all."""
LAUNCHERS: Final = tuple(launcher.value for launcher in TITLES)


def run_measure(
    *,
    cluster: str,
    plan: str | None,
    launcher: str | None,
    given: Sequence[str],
    limits: tuple[int, float],
    as_json: bool,
    output: Path | None,
    database_url: str | None,
) -> None:
    """Say what to measure next, and write or print the scripts of ``launcher``.

    ``limits``: most pairs, most minutes.
    """
    if launcher is not None and launcher not in LAUNCHERS:
        raise InvalidInput("--for", launcher, "unknown launcher", close_name(launcher, LAUNCHERS))
    options = options_given(given)
    if launcher is None and (given or output is not None):
        field = "--set" if given else "--output"
        raise InvalidInput(
            field, str(output or given[0]), "belongs to a script", f"add --for {'|'.join(LAUNCHERS)}"
        )
    snapshot, chosen = _read(cluster, plan, database_url)
    found = _wanted(snapshot, chosen, limits)
    files = scripts(found, Launcher(launcher or Launcher.NONE), options)
    if as_json:
        print_text(MeasuringAnswer.make(found, files).model_dump_json(indent=2))
    elif launcher is not None and output is None and files:
        _print_script(launcher, files)
    else:
        console().print(measuring_view(measuring_report(found, snapshot.cluster.nodes)))
    if output is not None and files:
        write_folder(output, launcher or "", files)
        if not as_json:
            _say_what_next(cluster, Launcher(launcher or ""), output, files)
    sys.stdout.flush()


def _read(cluster: str, plan: str | None, database_url: str | None) -> tuple[ClusterSnapshot, Plan | None]:
    """The cluster, a file or a stored one, and the plan, a file or the number of a stored one."""
    if is_path(cluster):
        snapshot = read_snapshot(cluster)
    else:
        from app.cli.clusters.stored import stored_snapshot  # noqa: PLC0415 - a file needs no database

        snapshot = stored_snapshot(cluster, database_url=database_url)
    if plan is None:
        return snapshot, None
    if is_path(plan):
        return snapshot, read_plan(plan)
    from app.cli.clusters.stored import stored_plan  # noqa: PLC0415 - a file needs no database

    return snapshot, stored_plan(plan, database_url=database_url)


def _wanted(snapshot: ClusterSnapshot, plan: Plan | None, limits: tuple[int, float]) -> MeasuringPlan:
    most_pairs, most_minutes = limits
    if not 60 * most_minutes >= 1:
        raise InvalidInput("--most-minutes", most_minutes, "must be at least a second", "allow some minutes")
    return what_to_measure(
        snapshot, at=datetime.now(UTC), plan=plan, most_pairs=most_pairs, most_seconds=60 * most_minutes
    )


def _print_script(launcher: str, files: Files) -> None:
    if len(files) > 1:
        problem = f"{launcher} takes {len(files)} files"
        raise InvalidInput("--output", None, problem, "name a folder: --output DIR")
    sys.stdout.write(files[0].text)


def _say_what_next(cluster: str, launcher: Launcher, folder: Path, files: Files) -> None:
    script = next((file for file in files if file.executable), files[0])
    into = cluster if is_path(cluster) else f"{cluster} --store"
    console().print(
        Text.assemble(
            f"\n{plural(len(files), 'file')} in {folder}.  Next:\n  ",
            (start_command(launcher, str(folder / script.name)), "bold"),
            "\nand when it is done\n  ",
            (
                f"meshwright import measured --into {into}" + (f" --output {cluster}" if into == cluster else ""),
                "bold",
            ),
        ),
        soft_wrap=True,
    )


def measuring_view(report: MeasuringReport) -> RenderableType:
    """The pairs in their rounds, why each, and how long it all takes."""
    if report.refusal:
        return Text(report.refusal)
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("round", justify="right")
    table.add_column("pair", overflow="fold")
    table.add_column("why")
    last = 0
    for row in report.rows[:SHOWN_PAIRS]:
        why = f"{row.why}\n{row.tests}" if row.tests else row.why
        table.add_row(str(row.round) if row.round != last else "", row.pair, why)
        last = row.round
    more = len(report.rows) - SHOWN_PAIRS
    return Group(
        Text(report.headline, style="bold"),
        Text(report.explanation),
        table,
        *([more_line(more, "pair")] if more > 0 else []),
        *([Text("Tests of each pair:"), bullets(report.tests)] if report.tests else []),
    )
