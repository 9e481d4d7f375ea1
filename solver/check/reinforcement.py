"""A second opinion on a joint plan of reinforcement learning, derived again from the problem alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cluster_models.reinforcement.plan import ReinforcementPlan, SplitEnd
from cluster_models.reinforcement.workload import Arrangement
from solver.check import check_plan
from solver.check.serving import check_serving_plan
from solver.problem import PlanningProblem
from solver.reinforcement.problem import ReinforcementProblem
from solver.serving.problem import ServingProblem

TOLERANCE: Final = 1e-6


def check_reinforcement(plan: ReinforcementPlan, problem: ReinforcementProblem) -> tuple[str, ...]:
    """Every rule that ``plan`` breaks as an answer to ``problem``, one sentence each; empty when sound."""
    return (
        *_node_rules(plan, problem),
        *_training_rules(plan, problem),
        *_rollout_rules(plan, problem),
        *_memory_rules(plan),
        *_step_rules(plan, problem),
        *_certificate_rules(plan),
    )


def _node_rules(plan: ReinforcementPlan, problem: ReinforcementProblem) -> Iterator[str]:
    """Both parts are on free nodes that are not avoided, apart or together as the plan says."""
    trainer, engine = set(plan.training_nodes), set(plan.rollout_nodes)
    if others := (trainer | engine) - {node.name for node in problem.nodes}:
        yield f"{min(others)} is not a node that the plan may use."
    if plan.arrangement not in problem.arrangements:
        yield f"The plan is {plan.arrangement}, which is not allowed."
    if plan.arrangement is Arrangement.SEPARATE and trainer & engine:
        yield f"{min(trainer & engine)} has both parts of a separate plan."
    if plan.arrangement is Arrangement.COLOCATED and engine - trainer:
        yield f"{min(engine - trainer)} has an engine and no trainer in a colocated plan."


def _training_rules(plan: ReinforcementPlan, problem: ReinforcementProblem) -> Iterator[str]:
    """The trainer's plan is sound and of the update asked for, with at least its headroom."""
    carried, asked = plan.training.workload, problem.workload.training
    if carried is None:
        yield "The trainer's plan does not say its workload."
        return
    own = {name: getattr(asked, name) for name in ("objective", "choice", "max_gpus", "avoid_nodes")}
    if replace(carried, memory_headroom=asked.memory_headroom, **own) != asked:
        yield "The trainer's plan is of another update."
    if carried.memory_headroom < asked.memory_headroom:
        yield "The trainer's plan leaves less memory free than was asked for."
    beside = PlanningProblem(problem.snapshot, problem.architecture, carried, fitted=problem.fitted)
    yield from (f"trainer: {broken}" for broken in check_plan(plan.training, beside))


def _rollout_rules(plan: ReinforcementPlan, problem: ReinforcementProblem) -> Iterator[str]:
    """The engine's plan is sound and of the policy; its last response ends after half of them have."""
    served = plan.serving.models[0]
    asked = problem.workload.rollout
    if served.architecture != problem.architecture or len(plan.serving.models) != 1:
        yield "The engine serves another model than the policy."
    if replace(served.workload, memory_fraction=asked.memory_fraction) != asked:
        yield "The engine's plan is of other requests."
    if len({str(replica.worker) for replica in plan.serving.replicas}) > 1:
        yield "The engine's replicas are not all of one shape."
    beside = ServingProblem(problem.snapshot, plan.serving.models, plan.serving.goal)
    yield from (f"engine: {broken}" for broken in check_serving_plan(plan.serving, beside))
    times = plan.rollout
    if not 0 < times.half_s <= times.finish_s or not 0 < times.mean_s <= times.finish_s * (1 + TOLERANCE):
        yield f"The last response ends after {times.finish_s} s, half of them after {times.half_s} s."


def _memory_rules(plan: ReinforcementPlan) -> Iterator[str]:
    """In turns, the engine's share and what the trainer leaves there fit into a GPU together."""
    memory = plan.memory
    if (memory is None) is (plan.arrangement is Arrangement.COLOCATED):
        yield "Memory is shared where the parts are not, or not stated where they are."
        return
    if memory is None:
        return
    used = memory.engine_fraction * memory.gpu_bytes + memory.resident_bytes
    if used > memory.gpu_bytes * (1 + TOLERANCE):
        yield f"Trainer and engine need {used:.6g} bytes of a GPU that has {memory.gpu_bytes:.6g}."
    states = max(stage.weights_bytes + stage.optimizer_bytes for stage in plan.training.memory)
    if memory.offloaded_bytes < states * (1 - TOLERANCE) and memory.resident_bytes < states:
        yield "The trainer's states are neither on the GPU nor offloaded while the engine generates."
    if plan.serving.models[0].workload.memory_fraction != memory.engine_fraction:
        yield "The engine is planned in another share of memory than it has."


def _step_rules(plan: ReinforcementPlan, problem: ReinforcementProblem) -> Iterator[str]:
    """The parts are those of both plans, and add up."""
    parts, workload = plan.parts, problem.workload
    overlaps = workload.staleness > 0 and plan.arrangement is Arrangement.SEPARATE
    if parts.is_overlapped is not overlaps:
        yield "Generating and learning overlap where they may not, or not where they may."
    stated = (parts.training_s, parts.rollout_s, parts.weights_s)
    derived = (
        workload.updates * workload.training.roles.steps * plan.training.time.step_s,
        plan.rollout.finish_s,
        plan.weights.seconds,
    )
    for name, said, meant in zip(("training", "rollout", "weights"), stated, derived, strict=True):
        if not math.isclose(said, meant, rel_tol=TOLERANCE):
            yield f"The {name} takes {meant} s, the step says {said} s."
    together = max(stated[:2]) if overlaps else sum(stated[:2])
    if not math.isclose(parts.step_s, together + parts.weights_s + parts.offload_s, rel_tol=TOLERANCE):
        yield f"The parts of the step do not add up to {parts.step_s} s."
    if not math.isclose(plan.weights.weight_bytes, 2.0 * problem.architecture.parameters(), rel_tol=TOLERANCE):
        yield f"The policy is said to be {plan.weights.weight_bytes} bytes in 16 bits."


def _certificate_rules(plan: ReinforcementPlan) -> Iterator[str]:
    """The bound is the least of all splits', on its side of the step, and counts are those of the splits."""
    said, splits = plan.certificate, plan.splits
    chosen = [split for split in splits if split.end is SplitEnd.CHOSEN]
    if len(chosen) != 1 or chosen[0].parts != plan.parts or chosen[0].arrangement is not plan.arrangement:
        yield "Not exactly one split is chosen, or another than the plan's."
    if not math.isclose(said.step_s, plan.parts.step_s, rel_tol=TOLERANCE):
        yield f"The certificate is of a step of {said.step_s} s."
    least = min(said.step_s, *(split.bound_s for split in splits if split.bound_s is not None))
    if not math.isclose(said.bound_s, least, rel_tol=TOLERANCE):
        yield f"The bound is {said.bound_s} s, the splits make it {least} s."
    if not math.isclose(said.gap, 1.0 - said.bound_s / said.step_s, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        yield f"The gap is said to be {said.gap}."
    for split in splits:
        if split.parts is not None and split.parts.step_s < plan.parts.step_s * (1 - TOLERANCE):
            yield f"A split with a step of {split.parts.step_s} s was not taken."
    counts = (
        len(splits),
        sum(split.parts is not None for split in splits),
        sum(split.end is SplitEnd.RULED_OUT for split in splits),
    )
    if counts != (said.splits, said.plans_made, said.ruled_out):
        yield "The certificate counts other splits than there are."
