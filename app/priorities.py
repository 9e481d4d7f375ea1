"""Precedence on cores that the processes of one machine share; answers to requests do, at niceness 0."""

from __future__ import annotations

import os
from typing import Final

SOLVES: Final = 10
"""Niceness of plans, decisions, and what else takes seconds: on an idle core as fast as any other."""
PREPARATIONS: Final = 15
"""Niceness of work for failures that may never come."""


def step_back(niceness: int) -> None:
    """Let this process, and those that it starts, go after those of a lower niceness."""
    os.nice(max(0, niceness - os.nice(0)))
