"""How far ahead a decision is worth weighing: until the job that it is about is hit again."""

from __future__ import annotations

import math


def expected_quiet_s(hits: int, *, at_work_s: float) -> float:
    """Expected seconds until a job is hit, from ``hits`` seen while jobs were at work for ``at_work_s`` in all.

    The time looked at over the hits seen: the likeliest mean where they come at random at one rate
    (docs/replanning.md); infinite where none was.
    """
    return at_work_s / hits if hits else math.inf
