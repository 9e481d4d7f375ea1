"""Whether what a plan says about drifting links follows from the plan and holds together."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cluster_models.training.plan import Plan
from cluster_models.training.robustness import Drifted, Robustness
from cluster_models.training.workload import LinkBandwidth, Objective
from solver.problem import PlanningProblem

TOLERANCE = 1e-6


def robustness_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules on the links a plan was made on, and on its step time and lead under drift, that ``plan`` breaks."""
    asked, stated = problem.workload.link_bandwidth, plan.provenance.link_bandwidth
    if stated is not asked:
        yield f"The plan was made on {stated} link bandwidth but the workload asks for {asked}."
    found = plan.robustness
    if found is None:
        return
    yield from _range_rules(found)
    yield from _rival_rules(plan, found)
    if asked is LinkBandwidth.MEDIAN and (found.slow_link == 0 or len(plan.placement.hosts) == 1):
        yield from _steady_rules(plan, found)
    yield from _loss_rules(found)
    if problem.workload.objective is Objective.STEP_TIME:
        yield from _safer_rules(found)


def _range_rules(found: Robustness) -> Iterator[str]:
    if found.draws < 1:
        yield f"Drift of links was drawn {found.draws} times."
    if not 0 <= found.slow_link < 1:
        yield f"A slow link is said to lose a share of {found.slow_link:.6g} of its bandwidth."
    for step in (found.step, *(rival.step for rival in found.rivals)):
        if not 0 < step.step_p10_s <= step.step_median_s <= step.step_p90_s < math.inf:
            yield f"Step times under drift do not rise: {_words(step)}."


def _rival_rules(plan: Plan, found: Robustness) -> Iterator[str]:
    named = [rival.alternative for rival in found.rivals]
    unknown = [index for index in named if not 0 <= index < len(plan.alternatives)]
    if unknown or len(set(named)) < len(named):
        yield f"Under drift the plan is held to alternatives {named} of {len(plan.alternatives)}."
    for rival in found.rivals:
        if not 0 <= rival.plan_ahead <= 1:
            yield f"The plan is ahead of alternative {rival.alternative} in a share of {rival.plan_ahead:.6g}."
    if found.safer is not None and found.safer not in named:
        yield f"Alternative {found.safer} is called safer but was not drawn."


def _steady_rules(plan: Plan, found: Robustness) -> Iterator[str]:
    """A plan made on medians takes what it is said to take where no link that it uses changes."""
    for seconds in (found.step.step_p10_s, found.step.step_p90_s):
        if not math.isclose(seconds, plan.time.step_s, rel_tol=TOLERANCE):
            yield (
                f"No link of the plan changes, so its step of {plan.time.step_s:.6g} s cannot take {seconds:.6g} s "
                f"under drift."
            )


def _loss_rules(found: Robustness) -> Iterator[str]:
    """The mean lies below the worst; something is lost in some draw exactly if some rival is ahead in some draw.

    A draw with a loss is one in which at least one rival is ahead, so the mean is bounded by their shares too.
    """
    mean, worst = found.mean_loss, found.worst_loss
    behind = sum(1 - rival.plan_ahead for rival in found.rivals)
    if not 0 <= mean <= worst * (1 + TOLERANCE) or not math.isfinite(worst):
        yield f"The plan loses {mean:.6g} on average under drift and {worst:.6g} at worst."
    elif (worst > 0) != (behind > 0):
        yield f"The plan loses {worst:.6g} at worst under drift but is behind in a share of {behind:.6g}."
    elif mean > worst * min(1.0, behind) * (1 + TOLERANCE):
        yield f"The plan is behind in a share of {behind:.6g} of draws, too few for a mean loss of {mean:.6g}."


def _safer_rules(found: Robustness) -> Iterator[str]:
    slow = {rival.alternative: rival.step.step_p90_s for rival in found.rivals}
    if found.safer in slow and slow[found.safer] >= found.step.step_p90_s:
        yield (
            f"Alternative {found.safer} is called safer but takes {slow[found.safer]:.6g} s at p90, the plan "
            f"{found.step.step_p90_s:.6g} s."
        )
    if found.safer is None and slow and min(slow.values()) < 0.999 * found.step.step_p90_s:
        yield (
            f"No alternative is called safer but one takes {min(slow.values()):.6g} s at p90, the plan "
            f"{found.step.step_p90_s:.6g} s."
        )


def _words(step: Drifted) -> str:
    return f"{step.step_p10_s:.6g}, {step.step_median_s:.6g}, {step.step_p90_s:.6g} s"
