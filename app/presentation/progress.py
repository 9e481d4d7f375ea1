"""Figures of a running search in the unit of what it is for."""

from __future__ import annotations

from app.presentation.figures import NOT_KNOWN, count, plural, seconds
from app.presentation.serving_words import objective_words
from solver.problem import Progress


def best_words(progress: Progress) -> str:
    """The best so far: a step time, or the objective of a search for serving."""
    return _words(progress, progress.incumbent_s, progress.best)


def bound_words(progress: Progress) -> str:
    """The bound that no plan can beat, likewise."""
    return _words(progress, progress.bound_s, progress.bound)


def candidates_words(progress: Progress) -> str:
    """How many candidates are left, or groups of workers priced."""
    if progress.objective is not None:
        return f"{plural(progress.candidates_total, 'group')} priced"
    return f"{count(progress.candidates_left)} of {count(progress.candidates_total)} candidates left"


def _words(progress: Progress, step_s: float | None, value: float | None) -> str:
    if progress.objective is None:
        return seconds(step_s)
    return NOT_KNOWN if value is None else objective_words(progress.objective, value)
