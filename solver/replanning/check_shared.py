"""Rules of decisions about training jobs and deployments, worked out again from problem and answer alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from cluster_models.jobs.recovery import BatchDecision
from cluster_models.jobs.serving import ServingDecision
from solver.check.serving import check_serving_plan
from solver.replanning.check import TOLERANCE, check_decision, gap_of, held_after
from solver.replanning.shared import SharedProblem
from solver.replanning.touched import spare_gpus
from solver.serving.problem import ServingProblem
from solver.serving.recovery.problem import RecoveryProblem
from solver.serving.recovery.settling import with_free


def check_shared(problem: SharedProblem, decision: BatchDecision) -> tuple[str, ...]:
    """Sentences about what is wrong with ``decision``; empty where all holds.

    Beside the rules of training jobs: every deployment decided once, no GPU lost, given twice, or another job's,
    plans sound, and figures that add up.
    """
    training = problem.without_serving()
    return (*check_decision(training, _of_training(problem, decision)), *_serving_rules(problem, decision))


def _of_training(problem: SharedProblem, decision: BatchDecision) -> BatchDecision:
    """Its part about training jobs, with the spares that these take, and no gap: the bound is that of all."""
    training, serving = problem.without_serving(), {job.id for job in problem.serving}
    own = replace(decision, untouched=tuple(name for name in decision.untouched if name not in serving))
    free = spare_gpus(training)
    taken = {node for held in held_after(training, own).values() for node, _ in held & free}
    beside = _taken_by_serving(problem, decision) - taken
    objective = math.fsum(made.value_flop for made in decision.jobs)
    return replace(
        own,
        spares_used=tuple(name for name in decision.spares_used if name not in beside),
        spares_left=(*decision.spares_left, *(name for name in decision.spares_used if name in beside)),
        objective=objective,
        bound=objective,
        gap=0.0,
    )


def _taken_by_serving(problem: SharedProblem, decision: BatchDecision) -> set[str]:
    """Nodes that deployments take GPUs of."""
    gpus = {job.id: job.gpus for job in problem.serving}
    return {node for made in decision.serving for node, _ in made.held - gpus.get(made.job_id, frozenset())}


def _serving_rules(problem: SharedProblem, decision: BatchDecision) -> Iterator[str]:
    jobs = {job.id: job for job in problem.serving}
    told = sorted(
        [*(made.job_id for made in decision.serving), *(name for name in decision.untouched if name in jobs)]
    )
    if told != sorted(jobs):
        yield "The deployments decided about are not those that run here, each once."
        return
    held = {gpu: job_id for job_id, gpus in held_after(problem.training, decision).items() for gpu in gpus}
    held |= {gpu: job_id for job_id in decision.untouched if job_id in jobs for gpu in jobs[job_id].gpus}
    for made in decision.serving:
        own = problem.recovery_of(jobs[made.job_id])
        lost = frozenset() if own.job.is_paused else own.lost
        for gpu in sorted(made.held):
            if gpu in lost or gpu not in own.job.gpus | own.spare_gpus:
                yield f"{made.job_name} gets GPU {gpu[0]}:{gpu[1]}, which is neither spare nor its own."
            if (other := held.setdefault(gpu, made.job_id)) != made.job_id:
                yield f"GPU {gpu[0]}:{gpu[1]} is given to {other} and to {made.job_id}."
        yield from _plan_rules(own, made)
    if forgotten := sorted(_taken_by_serving(problem, decision) & set(decision.spares_left)):
        yield f"Spares left are said to be {forgotten}, which deployments take."
    total = math.fsum(
        [*(made.value_flop for made in decision.jobs), *(made.value_flop for made in decision.serving)]
    )
    size = max(abs(total), 1.0)
    if abs(total - decision.objective) > TOLERANCE * size or decision.bound < total - TOLERANCE * size:
        yield f"Objective {decision.objective:g} and bound {decision.bound:g} do not go with {total:g}."
    if abs(gap_of(decision.objective, decision.bound) - decision.gap) > TOLERANCE:
        yield f"The gap {decision.gap:g} is not that of objective and bound."


def _plan_rules(own: RecoveryProblem, made: ServingDecision) -> list[str]:
    """Violations that an independent reading of the plan finds, on the GPUs that the deployment may use."""
    if made.plan is None:
        return []
    offered = {(idle.node, gpu) for idle in made.plan.idle for gpu in idle.gpus} | made.held
    asked = ServingProblem(with_free(own.snapshot, offered), own.job.plan.models, made.plan.goal)
    return [f"{made.job_name}: {text}" for text in check_serving_plan(made.plan, asked)]
