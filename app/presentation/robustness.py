"""Effect of link drift on a plan and its alternatives, as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass

from app.presentation.figures import NOT_KNOWN, percent, seconds
from cluster_models.training.plan import Plan
from cluster_models.training.robustness import Drifted


@dataclass(frozen=True, slots=True)
class DriftRow:
    """The plan or an alternative: deciles and median of its step, and how often the plan is ahead of it."""

    name: str
    p10: str
    median: str
    p90: str
    plan_ahead: str


def drift_rows(plan: Plan) -> tuple[DriftRow, ...]:
    """The plan first, then the alternatives, the runner-up first; nothing for plans made by hand."""
    found = plan.robustness
    if found is None:
        return ()
    rivals = [
        _row(str(plan.alternatives[rival.alternative].configuration.degrees), rival.step, _share(rival.plan_ahead))
        for rival in found.rivals
    ]
    return (_row("this plan", found.step, NOT_KNOWN), *rivals)


def drift_basis(plan: Plan) -> str:
    """Basis of the rows, in one sentence."""
    found = plan.robustness
    if found is None:
        return ""
    return f"{found.draws} draws of all links around their medians; spread: {found.spread_from}."


def _row(name: str, step: Drifted, plan_ahead: str) -> DriftRow:
    return DriftRow(
        name, seconds(step.step_p10_s), seconds(step.step_median_s), seconds(step.step_p90_s), plan_ahead
    )


def _share(share: float) -> str:
    """A share that is neither none nor all is not rounded to it."""
    return percent(share, places=0 if share in {0, 1} else 1)
