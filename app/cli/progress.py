"""The search on a terminal, while it runs: one line that changes, on standard error."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from app.presentation.figures import percent
from app.presentation.progress import best_words, candidates_words
from solver.problem import Progress

ProgressT = TypeVar("ProgressT")


@contextmanager
def shown_progress(console: Console, line: Callable[[ProgressT], Text]) -> Iterator[Callable[[ProgressT], None]]:
    """A callback that shows the state of a search in one line, or nothing where ``console`` is not a terminal."""
    if not console.is_terminal:
        yield lambda _progress: None
        return
    spinner = Spinner("dots", text=Text("reading"))
    with Live(spinner, console=console, refresh_per_second=8, transient=True):
        yield lambda progress: spinner.update(text=line(progress))


def progress_line(progress: Progress) -> Text:
    """How far a plan is, what matters most first: a narrow terminal cuts the end off."""
    parts = [f"{progress.elapsed_s:.0f} s"]
    if progress.gap is not None:
        parts.append(f"gap {percent(progress.gap, places=2)}")
    if progress.incumbent:
        parts.append(f"best {best_words(progress)}")
    parts.append(candidates_words(progress))
    parts.append(progress.phase)
    if progress.incumbent:
        parts.append(f"({progress.incumbent})")
    return Text("  ".join(parts), no_wrap=True, overflow="ellipsis")


@contextmanager
def cancelled_by_interrupt() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed: the search then returns its best so far.  A second Ctrl-C ends at once."""
    pressed = False

    def on_interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, before)
