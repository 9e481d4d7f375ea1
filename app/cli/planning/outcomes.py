"""A search for a plan of whatever kind in this process, and its result handed out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import typer
from pydantic import BaseModel
from rich.console import RenderableType

from app.cli.endings import Ending, Failed, complain
from app.cli.files import write_text
from app.cli.progress import cancelled_by_interrupt, progress_line, shown_progress
from app.cli.terminal import console, error_console
from cluster_models.errors import SolverFailed
from solver.problem import SearchOptions

Result = TypeVar("Result")


def searched(
    search: Callable[..., Result],
    problem: object,
    options: SearchOptions,
    *,
    check: Callable[[Any, Any], Sequence[str]],
    refusal: type,
) -> tuple[Result, bool]:
    """Result of a search here, checked, and whether Ctrl-C ended it; raises ``Failed`` on a fault of our own.

    Ctrl-C ends a search with the best found until then, and the command where nothing was found.
    """
    try:
        with (
            cancelled_by_interrupt() as is_cancelled,
            shown_progress(error_console(), progress_line) as on_progress,
        ):
            found = search(problem, options, on_progress=on_progress, is_cancelled=is_cancelled)
            cancelled = is_cancelled()
    except SolverFailed as error:
        if is_cancelled():
            raise KeyboardInterrupt from error
        raise Failed(str(error)) from error
    if isinstance(found, refusal):
        if cancelled:
            raise KeyboardInterrupt
    elif broken := check(found, problem):
        raise Failed(f"internal error: the plan found breaks its own rules: {' '.join(broken[:3])}")
    return found, cancelled


def end_if(cancelled: bool) -> None:
    """End with the code of an interrupted command, once its plan is handed out."""
    if cancelled:
        complain("meshwright: interrupted; this is the best plan found until then")
        raise typer.Exit(Ending.INTERRUPTED)


def hand_out_answer(
    answer: BaseModel, view: Callable[[], RenderableType] | None, *, as_json: bool, output: Path | None
) -> None:
    """Write an answer to a file, and print it as JSON or as its ``view``, which a refusal has not."""
    text = answer.model_dump_json(indent=2) + "\n"
    if output is not None:
        write_text(output, text)
    if as_json:
        sys.stdout.write(text)
        sys.stdout.flush()
    elif view is not None:
        console().print(view())


def end_without_plan(problem: str, refusal: tuple[str, str]) -> NoReturn:
    """End with code 3 after the reason and the remedy of a ``refusal``, on standard error."""
    reason, remedy = refusal
    complain(f"meshwright: {problem}: {reason}")
    complain(f"remedy: {remedy}")
    raise typer.Exit(Ending.NO_PLAN)
