"""The first answer for a serving deployment, without a search: what lives carries on, spares take lost places."""

from __future__ import annotations

from dataclasses import replace

from cluster_models.jobs.serving import ConsideredServing, ServingDecision
from cluster_models.serving.goal import ServingObjective
from cluster_models.serving.plan import ServingCertificate, ServingPlan
from cluster_models.training.plan import StopReason
from solver.problem import SearchOptions
from solver.serving.recovery.options import decision_of
from solver.serving.recovery.problem import RecoveryProblem
from solver.serving.recovery.settling import Together, as_plan, together
from solver.serving.recovery.standing import living_groups
from solver.serving.recovery.swapping import swapped_groups

_UNPROVEN = ServingCertificate(
    objective=0.0,
    bound=0.0,
    gap=1.0,
    stopped_by=StopReason.NO_SEARCH,
    shapes=0,
    shapes_too_large=0,
    groups=0,
    groups_over_limits=0,
    operating_points=0,
    solver="none",
)


def safe_serving(problem: RecoveryProblem) -> ServingDecision:
    """Carry on, or start lost replicas in their own shape on spares: whichever is worth more.

    Its plan has no bound: nothing else was looked at.
    """
    own = problem.job.gpus - problem.lost
    living = living_groups(problem.job.plan.groups, problem.lost)
    found = [decision_of(problem, together(problem, living, own), _unproven, living)]
    if (same := swapped_groups(problem)) is not None:
        usable = {gpu for gpu in problem.spare_gpus if problem.nodes[gpu[0]].usable}
        found.append(decision_of(problem, together(problem, same, own | usable), _unproven, living))
    best = max(found, key=lambda made: made.value_flop)
    rivals = tuple(
        ConsideredServing(made.action, len(made.held), made.value_flop) for made in found if made is not best
    )
    return replace(best, considered=rivals)


def _unproven(found: Together) -> ServingPlan | None:
    goal = found.problem.goal
    if not found.carried:
        goal = replace(goal, objective=ServingObjective.GOODPUT)
    plan = as_plan(found, _UNPROVEN, goal, SearchOptions())
    if plan is None:
        return None
    return replace(plan, certificate=replace(_UNPROVEN, objective=plan.certificate.objective))
