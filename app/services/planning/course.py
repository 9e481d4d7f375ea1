"""The course of a search: its best plan and its bound over time, kept with its progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.serialization import load

_KEY: Final = "course"
MOST_POINTS: Final = 80
"""A course that grows longer loses every second point but the newest."""


@dataclass(frozen=True, slots=True)
class CoursePoint:
    """Best step time and bound after ``elapsed_s`` seconds of a search; ``None`` where there is none yet."""

    elapsed_s: float
    incumbent_s: float | None
    bound_s: float | None


@dataclass(slots=True)
class Course:
    """The course of a search while it runs."""

    points: list[dict[str, Any]] = field(default_factory=list)

    def after(self, progress: Mapping[str, Any]) -> dict[str, Any]:
        """Progress to store: itself, with the course up to it."""
        if len(self.points) >= MOST_POINTS:
            self.points = self.points[::2]
        self.points.append({name: progress.get(name) for name in CoursePoint.__dataclass_fields__})
        return {**progress, _KEY: self.points}


def course_of(progress: Mapping[str, Any] | None) -> tuple[CoursePoint, ...]:
    """The course in stored progress; empty in that of older versions."""
    return load(tuple[CoursePoint, ...], (progress or {}).get(_KEY, ()))
