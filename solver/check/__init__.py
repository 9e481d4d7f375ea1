"""A second opinion on a plan, derived again from the problem alone.

Nothing here imports the search or the cost model: a mistake there must not be able to hide itself.  Only the
vocabulary (``cluster_models`` and ``solver.problem``) is shared; a test holds that line.
"""

from __future__ import annotations

from dataclasses import replace

from cluster_models.training.plan import Plan
from solver.check.caps import cap_violations
from solver.check.certificate import certificate_violations
from solver.check.configuration import configuration_violations, layer_violations
from solver.check.experts import expert_violations
from solver.check.figures import figure_violations
from solver.check.kinds import kind_violations
from solver.check.memory import memory_violations
from solver.check.offload import offload_violations
from solver.check.placement import placement_violations
from solver.check.robustness import robustness_violations
from solver.check.rules import rule_violations
from solver.check.selection import selection_violations
from solver.check.survival import survival_violations
from solver.check.timeline import timeline_violations
from solver.problem import PlanningProblem

__all__ = ["check_plan"]


def check_plan(plan: Plan, problem: PlanningProblem) -> tuple[str, ...]:
    """Every rule that ``plan`` breaks as an answer to ``problem``, one sentence each; empty when sound.

    A power cap that was chosen is that of the plan's own workload.
    """
    chosen = tuple(cap_violations(plan, problem))
    if problem.workload.choose_power_caps and plan.workload is not None:
        cap = plan.workload.gpu_power_cap_watts
        workload = replace(problem.workload, gpu_power_cap_watts=cap, choose_power_caps=False)
        problem = replace(problem, workload=workload)
    return (
        *chosen,
        *configuration_violations(plan.configuration, problem),
        *layer_violations(plan.configuration, problem),
        *placement_violations(plan, problem),
        *kind_violations(plan, problem),
        *rule_violations(plan, problem),
        *survival_violations(plan, problem),
        *expert_violations(plan, problem),
        *memory_violations(plan, problem),
        *offload_violations(plan, problem),
        *figure_violations(plan, problem),
        *certificate_violations(plan, problem),
        *robustness_violations(plan, problem),
        *selection_violations(plan, problem),
        *timeline_violations(plan, problem),
    )
