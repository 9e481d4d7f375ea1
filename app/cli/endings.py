"""How a command ends: its exit code, and one clear line on standard error for each thing that is wrong."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import ParamSpec

import typer

from app.documents.reading import problems_of
from cluster_models.errors import InvalidInput, MeshwrightError

P = ParamSpec("P")


class Ending(IntEnum):
    """Exit codes, the same for all commands."""

    DONE = 0
    INTERNAL_ERROR = 1
    BAD_INPUT = 2
    NO_PLAN = 3
    INTERRUPTED = 130


class Failed(MeshwrightError):
    """Our own fault, in one sentence."""


def complain(line: str) -> None:
    """One line on standard error."""
    print(" ".join(line.split()), file=sys.stderr)  # noqa: T201 - the command line speaks


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """``command`` with every error as a line and an exit code, never a traceback.

    ``MESHWRIGHT_DEBUG=1`` lets internal errors through with their traceback.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except InvalidInput as error:
            for problem in problems_of(error):
                complain(f"meshwright: {problem}")
            raise typer.Exit(Ending.BAD_INPUT) from error
        except MeshwrightError as error:
            complain(f"meshwright: {error}")
            own = isinstance(error, Failed)
            raise typer.Exit(Ending.INTERNAL_ERROR if own else Ending.BAD_INPUT) from error
        except KeyboardInterrupt as error:
            complain("meshwright: interrupted")
            raise typer.Exit(Ending.INTERRUPTED) from error
        except BrokenPipeError:
            _close_output()
            raise typer.Exit(Ending.DONE) from None
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:
            if os.environ.get("MESHWRIGHT_DEBUG"):
                raise
            complain(f"meshwright: internal error: {type(error).__name__}: {error}")
            complain("meshwright: set MESHWRIGHT_DEBUG=1 for the details, and please report them")
            raise typer.Exit(Ending.INTERNAL_ERROR) from error

    return run


def _close_output() -> None:
    """Point standard output at nothing: its reader has gone, and the interpreter flushes at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
