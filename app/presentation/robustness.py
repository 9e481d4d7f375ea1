"""Effect of link drift on a plan and its alternatives, as rows of a table."""

from __future__ import annotations

from dataclasses import dataclass

from app.presentation.figures import NOT_KNOWN, percent, seconds
from app.presentation.sentences import sentence
from cluster_models.training.plan import Plan
from cluster_models.training.robustness import Drifted, Robustness


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
    return f"{found.draws} draws of all links around their medians; spread: {sentence(found.spread_from)}."


def drift_summary(plan: Plan) -> str:
    """Lead that the plan keeps when links change, in one sentence; empty for plans made by hand."""
    found = plan.robustness
    if found is None:
        return ""
    if found.slow_link == 0:
        return f"Drift of links does not touch the plan: {sentence(found.spread_from)}."
    start = f"When links change (one in ten {percent(found.slow_link, places=0)} or more below its median)"
    low, high = seconds(found.step.step_p10_s), seconds(found.step.step_p90_s)
    between = low if low == high else f"{low} to {high}"
    step = f"a step takes {between} in four cases of five"
    if not found.rivals:
        return f"{start}, {step}."
    stated = f"{start}, {step} and the plan {_standing(found)}"
    if found.safer is None:
        return f"{stated}."
    rival = found.rivals[found.safer]
    name = plan.alternatives[rival.alternative].configuration.degrees
    return (
        f"{stated}; {name} is the safer choice: its slow decile is {seconds(rival.step.step_p90_s)} against {high}."
    )


def _standing(found: Robustness) -> str:
    """Comparison of the plan with its alternatives over all draws."""
    if all(rival.plan_ahead == 1 for rival in found.rivals):
        return f"stays ahead of {'every alternative' if len(found.rivals) > 1 else 'its only alternative'} in all"
    return (
        f"stays ahead of the runner-up in {_two_digits(found.rivals[0].plan_ahead)}, losing "
        f"{_two_digits(found.mean_loss)} on average and {_two_digits(found.worst_loss)} at worst to the best "
        "alternative"
    )


def _two_digits(share: float) -> str:
    """Two digits; a share just below all is not rounded to it."""
    if 0.99 < share < 1:
        return percent(share)
    return percent(share, places=0) if share >= 0.1 else f"{100 * share:.2g} %"


def _row(name: str, step: Drifted, plan_ahead: str) -> DriftRow:
    return DriftRow(
        name, seconds(step.step_p10_s), seconds(step.step_median_s), seconds(step.step_p90_s), plan_ahead
    )


def _share(share: float) -> str:
    """A share that is neither none nor all is not rounded to it."""
    return percent(share, places=0 if share in {0, 1} else 1)
