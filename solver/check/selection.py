"""Whether what a plan says about its choice among plans as good holds together."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cluster_models.training.plan import Plan
from cluster_models.training.rank_costs import TIME_PARTS
from cluster_models.training.selection import Selection
from cluster_models.training.workload import Choice, Objective
from solver.problem import PlanningProblem

TOLERANCE = 1e-6
MOST_GIVEN_UP = 0.02
"""Share of the objective that a simpler plan may give up."""


def selection_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules on what was chosen, what it costs and what else is as good that ``plan`` breaks."""
    yield from _part_rules(plan)
    found = plan.selection
    if found is None:
        return
    yield from _cost_rules(plan, found)
    yield from _call_rules(plan, found)
    if problem.workload.objective is Objective.STEP_TIME and found.fastest is not None:
        best_s = plan.alternatives[found.fastest].step_s
        if not math.isclose(plan.time.step_s, best_s * (1 + found.given_up), rel_tol=TOLERANCE):
            yield (
                f"The plan's {plan.time.step_s:.6g} s are not {found.given_up:.6g} more than the {best_s:.6g} s of "
                "the fastest found."
            )


def _part_rules(plan: Plan) -> Iterator[str]:
    """The parts of an alternative add up to its step, so that its gains and losses add up to its difference."""
    for number, other in enumerate(plan.alternatives, start=1):
        if other.time is not None:
            whole = sum(getattr(other.time, part) for part in TIME_PARTS)
            if not math.isclose(whole, other.step_s, rel_tol=TOLERANCE):
                yield f"The parts of alternative {number} make {whole:.6g} s, not its {other.step_s:.6g} s."


def _cost_rules(plan: Plan, found: Selection) -> Iterator[str]:
    if not 0 <= found.given_up < math.inf:
        yield f"The plan is said to give up a share of {found.given_up:.6g}."
    if found.choice is Choice.FASTEST and found.given_up:
        yield f"The fastest plan was asked for but {found.given_up:.6g} is given up."
    if found.choice is Choice.SIMPLEST and found.given_up > MOST_GIVEN_UP * (1 + TOLERANCE):
        yield f"A simpler plan gives up {found.given_up:.6g}, more than {MOST_GIVEN_UP:g}."
    if found.fastest is None and found.given_up:
        yield f"A share of {found.given_up:.6g} is given up to no alternative."
    if found.fastest is not None and not 0 <= found.fastest < len(plan.alternatives):
        yield f"The fastest found is called alternative {found.fastest} of {len(plan.alternatives)}."


def _call_rules(plan: Plan, found: Selection) -> Iterator[str]:
    named = [call.alternative for call in found.close_calls]
    if len(set(named)) < len(named) or not all(0 <= index < len(plan.alternatives) for index in named):
        yield f"Alternatives {named} of {len(plan.alternatives)} are called close."
    for call in found.close_calls:
        if not (0 < call.ratio_low <= call.ratio_high < math.inf and 0 <= call.chance_better <= 1):
            yield (
                f"Alternative {call.alternative} is called better with probability {call.chance_better:.6g}, at "
                f"{call.ratio_low:.6g} to {call.ratio_high:.6g} of the plan."
            )
    trial = found.trial
    if trial is not None and (trial.alternative not in named or trial.steps < 1 or not trial.gpu_minutes > 0):
        cost = f"{trial.steps} steps and {trial.gpu_minutes:.6g} GPU-minutes"
        yield f"The trial of alternative {trial.alternative} takes {cost}."
