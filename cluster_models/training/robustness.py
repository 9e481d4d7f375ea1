"""Lead of a plan over its alternatives when links change (docs/robustness.md)."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_models.remarks import Remark


@dataclass(frozen=True, slots=True)
class Drifted:
    """Step time when links change: its deciles and its median over the draws."""

    step_p10_s: float
    step_median_s: float
    step_p90_s: float


@dataclass(frozen=True, slots=True)
class Rival:
    """An alternative in the same draws; ``alternative`` counts in ``Plan.alternatives``.

    ``plan_ahead`` is the share of draws in which the plan is no worse by the objective.
    """

    alternative: int
    step: Drifted
    plan_ahead: float


@dataclass(frozen=True, slots=True)
class Robustness:
    """Remaining lead of the plan when links change by the spread seen (docs/robustness.md).

    Over ``draws`` draws of all links around their medians.  ``slow_link`` is the share of its median bandwidth that
    a link of the plan loses at its slow decile, ``spread_from`` the origin of the spread.  ``rivals`` start with
    the runner-up; the losses are shares of the objective of the best of them in each draw.  ``safer`` counts in
    ``Plan.alternatives``: the one that is best at p90 where the plan is not.
    """

    draws: int
    slow_link: float
    spread_from: Remark
    step: Drifted
    rivals: tuple[Rival, ...]
    mean_loss: float
    worst_loss: float
    safer: int | None
