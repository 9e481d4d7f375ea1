"""How far a running search is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.db.status import PlanStatus
from app.presentation.figures import count, percent, plural
from app.presentation.progress import best_words, bound_words
from app.services.planning.plans import PlanRecord
from app.web.drawing import Drawing
from app.web.planning.search_course import search_course


@dataclass(frozen=True, slots=True)
class ProgressNow:
    """``words`` change only when there is news worth speaking; ``share`` is ``None`` while nothing is counted."""

    words: str
    share: str | None
    figures: tuple[tuple[str, str], ...]
    course: Drawing | None = None
    can_stop: bool = False


def progress_now(plan: PlanRecord, now: datetime, *, ahead: int = 0) -> ProgressNow:
    """The progress of a plan that waits, with ``ahead`` plans before it, or runs; best and bound are step times."""
    elapsed = ("elapsed", f"{(now - plan.created_at).total_seconds():.0f} s")
    newest = plan.progress
    if plan.status is PlanStatus.QUEUED:
        place = f" {plural(ahead, 'plan')} before this one." if ahead else ""
        return ProgressNow(f"Waiting for a free solver.{place}", None, (elapsed,))
    if newest is None:
        return ProgressNow("The search is starting.", None, (elapsed,))
    serving = newest.objective is not None
    if plan.is_stopping:
        words = "The search ends with the best plan so far."
    elif newest.incumbent:
        words = f"Best so far: {newest.incumbent}, {best_words(newest)}{'' if serving else ' a step'}."
    else:
        words = "The search is running; no plan has been found yet."
    left, total = newest.candidates_left, newest.candidates_total
    return ProgressNow(
        words=words,
        share=f"{1 - left / total:.3f}" if total and not serving else None,
        figures=(
            elapsed,
            ("phase", newest.phase.replace("_", " ")),
            ("groups priced", count(total)) if serving else ("candidates left", f"{count(left)} of {count(total)}"),
            ("best so far" if serving else "best step time so far", best_words(newest)),
            ("no plan can beat", bound_words(newest)),
            ("gap", percent(newest.gap, places=2)),
        ),
        course=search_course(plan.course),
        can_stop=bool(newest.incumbent) and not plan.is_stopping,
    )
