"""What is known of a parameter before own runs are fitted: where it lies and how far from there it may be.

A framework generation that nobody measured is one more of those that were: its parameters are expected where theirs
lie and spread as theirs do.  A parameter that was fitted already is known as well as its interval says, and may
differ a little from site to site.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SITES: Final = 0.3
"""Standard deviation on the logit scale between sites of what was fitted elsewhere."""
LEAST_OF_KIND: Final = 0.2
COMMON_SPREAD: Final = 0.5
"""Of a factor that is common to all runs of a framework: a sixth up or down... """
USUAL_SPREAD: Final = 1.0
USUAL_COUNT: Final = 3.0
"""The default counts as so many measured values, with ``USUAL_SPREAD`` around it."""
UNTOLD_SPREAD: Final = 1.2
"""Of a parameter that no fit has told anywhere."""
SWITCHED_SPREAD: Final = 2.5
"""Of what most frameworks do not do at all (an overhead that is zero) and some do at length."""
EDGE: Final = 6.0
"""Values farther out than this on the logit scale stand at an end of their range."""
FARTHEST: Final = 4.0
"""Values at an end of their range count as if they lay here."""


@dataclass(frozen=True, slots=True)
class Belief:
    """``middle`` and ``spread`` (a standard deviation) of a parameter on the logit scale of its range."""

    middle: float
    spread: float
