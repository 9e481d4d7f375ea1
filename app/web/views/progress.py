"""How far a running search is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.web.views.figures import count, percent, seconds


@dataclass(frozen=True, slots=True)
class ProgressNow:
    """``words`` change only when there is news worth speaking; ``share`` is ``None`` while nothing is counted."""

    words: str
    share: str | None
    figures: tuple[tuple[str, str], ...]


def progress_now(
    newest: Mapping[str, Any] | None, *, running: bool, waited_s: float, prices_in_seconds: bool
) -> ProgressNow:
    """The progress of a plan that is queued (``running`` false) or searched for ``waited_s`` seconds.

    ``newest`` is the last line of progress (fields of ``solver.problem.Progress``).  Best and bound are step
    times only where the objective is one; otherwise they stand without a unit.
    """
    elapsed = ("elapsed", f"{waited_s:.0f} s")
    if not running:
        return ProgressNow("Waiting for a free solver.", None, (elapsed,))
    if newest is None:
        return ProgressNow("The search is starting.", None, (elapsed,))
    total, left = newest.get("candidates_total") or 0, newest.get("candidates_left") or 0
    best, bound, gap = (newest.get(name) for name in ("incumbent_s", "bound_s", "gap"))
    shown = seconds if prices_in_seconds else _plain
    configuration = newest.get("incumbent")
    return ProgressNow(
        words=f"Best so far: {configuration}, {shown(best)}."
        if configuration
        else "The search is running; no plan has been found yet.",
        share=f"{1 - left / total:.3f}" if total else None,
        figures=(
            elapsed,
            ("phase", str(newest.get("phase", "")).replace("_", " ")),
            ("candidates left", f"{count(left)} of {count(total)}"),
            ("best so far", shown(best)),
            ("no plan can beat", shown(bound)),
            ("gap", percent(gap, places=2)),
        ),
    )


def _plain(value: float | None) -> str:
    return seconds(None) if value is None else f"{value:.6g}"
