"""``meshwright sensitivity``: plans on fewer GPUs, and gains of other hardware or settings."""

from __future__ import annotations

import sys

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from app.cli.endings import Ending, Failed, complain
from app.cli.planning.planning import ProblemFiles, deliver, read_problem
from app.cli.progress import cancelled_by_interrupt, progress_line, shown_progress
from app.cli.terminal import bullets, console, error_console, section, table
from app.documents.sensitivity import SensitivityDocument
from app.presentation.sensitivity import (
    EFFECT_COLUMNS,
    FRONT_COLUMNS,
    effect_cells,
    front_cells,
    sensitivity_headline,
    sensitivity_notes,
)
from cluster_models.errors import SolverFailed
from cluster_models.training.plan import NoPlan
from cluster_models.training.sensitivity import Sensitivity
from solver.problem import SearchOptions
from solver.sensitivity import sensitivity


def run_sensitivity(files: ProblemFiles, *, options: SearchOptions, as_json: bool) -> None:
    """Search here, and print; ends with code 3 where nothing fits."""
    problem = read_problem(files)
    try:
        with (
            cancelled_by_interrupt() as is_cancelled,
            shown_progress(error_console(), progress_line) as on_progress,
        ):
            found = sensitivity(problem, options, on_progress=on_progress, is_cancelled=is_cancelled)
            cancelled = is_cancelled()
    except SolverFailed as error:
        raise Failed(str(error)) from error
    if isinstance(found, NoPlan):
        deliver(found, as_json=as_json, output=None)
        return
    if as_json:
        sys.stdout.write(SensitivityDocument.from_value(found).model_dump_json(indent=2) + "\n")
        sys.stdout.flush()
    else:
        console().print(_view(found))
    if cancelled:
        complain("meshwright: interrupted; this is what was found until then")
        raise typer.Exit(Ending.INTERRUPTED)


def _view(found: Sensitivity) -> RenderableType:
    possible = [effect for effect in found.effects if effect.obstacle is None]
    return Group(
        Text(sensitivity_headline(found), style="bold"),
        section("On so many GPUs", table(FRONT_COLUMNS, map(front_cells, found.front))),
        section(
            "What would change the fastest",
            table(EFFECT_COLUMNS, (effect_cells(effect, found.fastest) for effect in possible)),
        ),
        bullets(sensitivity_notes(found)),
    )
