"""How far a decision is, as one line of a terminal."""

from __future__ import annotations

from rich.text import Text

from app.presentation.figures import count, percent
from solver.replanning.decide import ReplanProgress


def progress_line(progress: ReplanProgress) -> Text:
    """How far a decision is, what matters most first: a narrow terminal cuts the end off."""
    parts = [f"{progress.elapsed_s:.0f} s"]
    if progress.gap is not None:
        parts.append(f"gap {percent(progress.gap, places=2)}")
    parts.append(f"{count(progress.options)} options of {count(progress.jobs)} jobs")
    parts.append(progress.phase)
    return Text("  ".join(parts), no_wrap=True, overflow="ellipsis")
