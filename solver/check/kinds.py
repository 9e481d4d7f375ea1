"""Whether every stage runs on GPUs of the one kind that the plan says, in all its replicas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from cluster_models.training.plan import Plan
from solver.problem import PlanningProblem


def kind_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules on GPU kinds of stages that ``plan`` breaks; plans made by hand may leave the kinds open."""
    kind_of = {node.name: node.gpu_kind for node in problem.snapshot.cluster.nodes}
    found: dict[int, set[str]] = defaultdict(set)
    for place in plan.placement.ranks:
        if place.node in kind_of:
            found[place.pipeline].add(kind_of[place.node])
    for stage, kinds in sorted(found.items()):
        if len(kinds) > 1:
            yield f"Stage {stage} runs on several GPU kinds: {', '.join(sorted(kinds))}."
    for told in plan.stages:
        kinds = found.get(told.stage, set())
        if told.gpu_kind and kinds and kinds != {told.gpu_kind}:
            names = ", ".join(sorted(kinds))
            yield f"Stage {told.stage} is said to run on {told.gpu_kind} but its ranks are on {names}."
