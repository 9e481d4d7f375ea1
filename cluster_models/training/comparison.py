"""One configuration against another on the same cluster, model and workload."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a configuration stands to the plan that it is compared with.

    ``objective_ratio``: its predicted objective over the plan's.  The measured ratio is expected between
    ``ratio_low`` and ``ratio_high`` with probability ``level``, and below 1 with probability ``chance_better``.
    """

    objective_ratio: float
    ratio_low: float
    ratio_high: float
    level: float
    chance_better: float

    @property
    def can_be_told(self) -> bool:
        """Whether predictions can tell which of the two is the better one."""
        return not self.ratio_low <= 1 <= self.ratio_high
