"""Whether the expert map gives every expert a home and every rank the same number of slots."""

from __future__ import annotations

from collections.abc import Iterator

from cluster_models.plan import Plan
from solver.problem import PlanningProblem


def expert_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules that ``plan.expert_map`` breaks."""
    experts, degree = problem.architecture.experts, plan.configuration.degrees.expert
    if experts is None:
        if plan.expert_map:
            yield f"The expert map has {len(plan.expert_map)} rows but the model has no experts."
        return
    if len(plan.expert_map) != degree:
        yield f"The expert map has {len(plan.expert_map)} rows for expert degree {degree}."
    for rank, held in enumerate(plan.expert_map):
        if len(set(held)) != len(held):
            yield f"Expert rank {rank} holds an expert twice: {held}."
    placed = {expert for held in plan.expert_map for expert in held}
    missing = sorted(set(range(experts.count)) - placed)
    unknown = sorted(placed - set(range(experts.count)))
    if missing:
        yield f"{len(missing)} of {experts.count} experts have no rank, the first is {missing[0]}."
    if unknown:
        yield f"The expert map names experts {unknown} but the model has 0 to {experts.count - 1}."
    slots = sorted({len(held) for held in plan.expert_map})
    if len(slots) > 1:
        yield f"Expert ranks hold between {slots[0]} and {slots[-1]} experts instead of equally many."
