"""What stands beside a fact of a framework: its meaning, and how users write it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fact:
    """Meaning of a field of ``Framework``, and how users write it.

    ``most``: no number above it is possible.  ``precision``: users write a width in bytes as the number format of
    that width, in a field of this name.  ``setting``: a single run may depart from what its framework does.
    ``least``: items of a list.
    """

    meaning: str
    most: float = math.inf
    precision: str = ""
    setting: bool = False
    least: int = 1
