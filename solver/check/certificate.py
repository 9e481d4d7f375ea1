"""Whether the certificate and the alternatives say what the plan's own figures say."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cluster_models.training.plan import Plan
from cluster_models.training.workload import Objective
from solver.check.configuration import configuration_violations
from solver.problem import PlanningProblem

TOLERANCE = 1e-6


def certificate_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules on objective, bound, gap, counts and alternatives that ``plan`` breaks."""
    yield from _objective_rules(plan, problem)
    yield from _gap_rules(plan)
    yield from _count_rules(plan)
    yield from _alternative_rules(plan, problem)


def _objective_rules(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    expected = _objective(plan, problem)
    if expected is None:
        yield "The objective is cost but a GPU kind of the plan has no price."
        return
    stated = plan.certificate.objective * (1 + _given_up(plan))
    if not math.isclose(stated, expected, rel_tol=TOLERANCE):
        yield (
            f"The certificate states objective {stated:.9g} but the plan's {problem.workload.objective} is "
            f"{expected:.9g}."
        )


def plan_watts(plan: Plan, problem: PlanningProblem) -> float:
    """Power of the GPUs of a plan: that of their data sheets, or the cap."""
    cluster, cap = problem.snapshot.cluster, problem.workload.gpu_power_cap_watts or math.inf
    watts = {node.name: min(cap, cluster.gpu_kinds[node.gpu_kind].power_watts) for node in cluster.nodes}
    return sum(watts.get(place.node, math.inf) for place in plan.placement.ranks)


def _given_up(plan: Plan) -> float:
    """Share by which the plan says that its objective lies above the best found."""
    return 0.0 if plan.selection is None else plan.selection.given_up


def _objective(plan: Plan, problem: PlanningProblem) -> float | None:
    """Seconds, GPU seconds, US dollars or joules of one step; ``None`` where a price is missing."""
    gpus, step = plan.configuration.degrees.gpus, plan.time.step_s
    if problem.workload.objective is Objective.STEP_TIME:
        return step
    if problem.workload.objective is Objective.GPU_TIME:
        return step * gpus
    if problem.workload.objective is Objective.ENERGY:
        return step * plan_watts(plan, problem)
    cluster = problem.snapshot.cluster
    price_of = {node.name: cluster.gpu_kinds[node.gpu_kind].price_usd_per_hour for node in cluster.nodes}
    dollars_per_hour = 0.0
    for place in plan.placement.ranks:
        price = price_of.get(place.node)
        if price is None:
            return None
        dollars_per_hour += price
    return step * dollars_per_hour / 3600


def _gap_rules(plan: Plan) -> Iterator[str]:
    proof = plan.certificate
    if not (math.isfinite(proof.bound) and 0 <= proof.bound <= proof.objective * (1 + TOLERANCE)):
        yield f"The bound {proof.bound:.9g} does not lie between 0 and the objective {proof.objective:.9g}."
        return
    if not proof.gap >= 0:
        yield f"The gap {proof.gap:.9g} is negative."
    expected = (proof.objective - proof.bound) / proof.objective if proof.objective else 0.0
    if not math.isclose(proof.gap, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        yield f"The gap is given as {proof.gap:.9g} but objective and bound make {expected:.9g}."


def _count_rules(plan: Plan) -> Iterator[str]:
    proof = plan.certificate
    ends = (proof.candidates_infeasible, proof.candidates_pruned, proof.candidates_placed)
    if min(*ends, proof.candidates_total) < 0:
        yield f"The certificate has negative counts: {ends} of {proof.candidates_total}."
    if sum(ends) > proof.candidates_total:
        yield (
            f"{ends[0]} infeasible + {ends[1]} pruned + {ends[2]} placed candidates are more than the "
            f"{proof.candidates_total} in total."
        )


def _alternative_rules(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    limit = max((memory.limit_bytes for memory in plan.memory), default=math.inf)
    for index, other in enumerate(plan.alternatives, start=1):
        for problem_found in configuration_violations(other.configuration, problem):
            yield f"Alternative {index} is not legal: {problem_found}"
        fits = other.peak_memory_bytes <= limit
        scale = _relative_price(plan, problem, gpus=other.configuration.degrees.gpus)
        best_s = plan.time.step_s / (1 + _given_up(plan))
        if fits and other.step_s * scale < best_s * (1 - TOLERANCE):
            yield (
                f"Alternative {index} ({other.configuration.degrees}) takes {other.step_s:.6g} s a step and "
                f"beats the best found, {best_s:.6g} s, by {problem.workload.objective}."
            )


def _relative_price(plan: Plan, problem: PlanningProblem, *, gpus: int) -> float:
    """Weight of a second on ``gpus`` GPUs against one on the plan's; at the dearest price if kinds differ."""
    own_gpus = plan.configuration.degrees.gpus
    if problem.workload.objective is Objective.STEP_TIME:
        return 1.0
    if problem.workload.objective is Objective.GPU_TIME:
        return gpus / own_gpus
    kinds = problem.snapshot.cluster.gpu_kinds.values()
    if problem.workload.objective is Objective.ENERGY:
        cap = problem.workload.gpu_power_cap_watts or math.inf
        return gpus * max(min(cap, kind.power_watts) for kind in kinds) / plan_watts(plan, problem)
    prices = [kind.price_usd_per_hour for kind in kinds if kind.price_usd_per_hour is not None]
    own = _objective(plan, problem)
    if not prices or not own:
        return 1.0
    return gpus * max(prices) / 3600 * plan.time.step_s / own
