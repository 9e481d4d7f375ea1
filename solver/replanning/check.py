"""Rules of every decision, worked out again from the problem and the answer alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cluster_models.jobs.recovery import BatchDecision, JobDecision, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.training.plan import Plan
from solver.check.configuration import layer_violations
from solver.problem import PlanningProblem
from solver.replanning.problem import ReplanProblem
from solver.replanning.program import Gpu
from solver.replanning.touched import beside_gpus, held_gpus, live_gpus, lost_gpus, spare_gpus

TOLERANCE: Final = 1e-9
"""Rounding in sums of FLOPs, as a share."""
STANDING: Final = frozenset({RecoveryAction.WAIT, RecoveryAction.PAUSE})
"""Actions after which no step is made."""


def check_decision(problem: ReplanProblem, decision: BatchDecision) -> tuple[str, ...]:
    """Sentences about what is wrong with ``decision``; empty where all holds.

    No GPU twice and none that failed, new ranks only on usable nodes that were free or given up, every job decided
    once, shapes legal, the GPU budget kept, spares counted right, the objective the sum of its parts and the gap
    that of objective and bound.
    """
    return tuple(_violations(problem, decision))


def held_after(problem: ReplanProblem, decision: BatchDecision) -> dict[str, frozenset[Gpu]]:
    """The GPUs of every job after ``decision``, by its id: those that it waits on too, none where it pauses."""
    jobs = {job.id: job for job in problem.jobs}
    held = {job_id: held_gpus(jobs[job_id]) for job_id in decision.untouched if job_id in jobs}
    for made in decision.jobs:
        if made.job_id in jobs:
            held[made.job_id] = _held(problem, jobs[made.job_id], made)
    return held


def _held(problem: ReplanProblem, job: RunningJob, made: JobDecision) -> frozenset[Gpu]:
    if made.action is RecoveryAction.PAUSE:
        return frozenset()
    if made.action is RecoveryAction.WAIT or made.plan is None:
        return live_gpus(problem, job)
    return frozenset((place.node, place.gpu) for place in made.plan.placement.ranks)


def _violations(problem: ReplanProblem, decision: BatchDecision) -> Iterator[str]:
    yield from _once(problem, decision)
    yield from _gpus(problem, decision)
    yield from _figures(decision)
    yield from _spares(problem, decision)
    jobs = {job.id: job for job in problem.jobs}
    for made in decision.jobs:
        if made.job_id in jobs:
            yield from (f"{made.job_name}: {text}" for text in _job(problem, jobs[made.job_id], made))


def _once(problem: ReplanProblem, decision: BatchDecision) -> Iterator[str]:
    counts = Counter([made.job_id for made in decision.jobs] + list(decision.untouched))
    for job in problem.jobs:
        if counts[job.id] != 1:
            yield f"{job.name} is decided {counts[job.id]} times."
        if job.id in decision.untouched and lost_gpus(problem, job):
            yield f"{job.name} lost GPUs but is called untouched."
    for stranger in sorted(set(counts) - {job.id for job in problem.jobs}):
        yield f"{stranger} is decided but does not run here."


def _gpus(problem: ReplanProblem, decision: BatchDecision) -> Iterator[str]:
    held = held_after(problem, decision)
    takers: dict[Gpu, str] = {}
    for job_id in sorted(held):
        for gpu in sorted(held[job_id]):
            if (other := takers.setdefault(gpu, job_id)) != job_id:
                yield f"GPU {gpu[0]}:{gpu[1]} is given to {other} and to {job_id}."
    frozen = sum(len(held[job_id]) for job_id in decision.untouched if job_id in held)
    if problem.gpu_budget is not None and len(takers) > max(frozen, problem.gpu_budget):
        yield f"The jobs hold {len(takers)} GPUs, more than the budget of {problem.gpu_budget}."
    beside = {gpu for job in problem.jobs for gpu in beside_gpus(problem, job)}
    given = spare_gpus(problem) | beside | {gpu for job in problem.jobs for gpu in live_gpus(problem, job)}
    before = {job.id: held_gpus(job) for job in problem.jobs}
    for job_id in sorted(made.job_id for made in decision.jobs if made.job_id in before):
        for new in sorted(held[job_id] - before[job_id]):
            if new not in given:
                yield f"{job_id} gets GPU {new[0]}:{new[1]}, which is neither spare nor given up."
            elif not problem.nodes[new[0]].usable:
                yield f"{job_id} gets GPU {new[0]}:{new[1]} on a node that is {problem.nodes[new[0]].state}."


def _figures(decision: BatchDecision) -> Iterator[str]:
    total = math.fsum(made.value_flop for made in decision.jobs)
    size = max(abs(total), abs(decision.objective), abs(decision.bound), 1.0)
    if abs(total - decision.objective) > TOLERANCE * size:
        yield f"The objective {decision.objective:.6g} is not the sum {total:.6g} of the jobs' values."
    if decision.bound < decision.objective - TOLERANCE * size:
        yield f"The bound {decision.bound:.6g} is below the objective {decision.objective:.6g}."
    if abs(gap_of(decision.objective, decision.bound) - decision.gap) > TOLERANCE:
        yield f"The gap {decision.gap:.6g} is not that of objective and bound."


def gap_of(objective: float, bound: float) -> float:
    """``(bound - objective) / bound``; 0 where nothing can be gained."""
    return max(0.0, (bound - objective) / bound) if bound > 0 else 0.0


def _spares(problem: ReplanProblem, decision: BatchDecision) -> Iterator[str]:
    gpus = spare_gpus(problem)
    free = {node for node, _ in gpus}
    taken = {node for held in held_after(problem, decision).values() for node, _ in held & gpus}
    if set(decision.spares_before) != free:
        yield f"Spares before are {sorted(decision.spares_before)}, but {sorted(free)} are usable."
    if set(decision.spares_used) != taken:
        yield f"Spares used are {sorted(decision.spares_used)}, but the jobs hold {sorted(taken)} of them."
    if set(decision.spares_left) != free - taken:
        yield f"Spares left are {sorted(decision.spares_left)}, but {sorted(free - taken)} stay free."


def _job(problem: ReplanProblem, job: RunningJob, made: JobDecision) -> Iterator[str]:
    held = _held(problem, job, made)
    # rerouted work leaves the lost ranks where they were, out of the plan
    for node, gpu in sorted(held & lost_gpus(problem, job)):
        yield f"rank on {node}:{gpu}, which is lost"
    plan = made.plan
    if made.action in STANDING:
        if made.tokens_per_s_after:
            yield f"{made.action} with {made.tokens_per_s_after:.6g} tokens/s"
        return
    if plan is None:
        yield f"{made.action} without a plan"
        return
    yield from _shape(problem, job, plan, made.action)
    places = {place.rank: (place.node, place.gpu) for place in plan.placement.ranks}
    for moved in made.migration.moved:
        if places.get(moved.rank) != (moved.to_node, moved.to_gpu):
            yield f"rank {moved.rank} moves to {moved.to_node}:{moved.to_gpu}, where the plan does not have it"


def _shape(problem: ReplanProblem, job: RunningJob, plan: Plan, action: RecoveryAction) -> Iterator[str]:
    degrees, workload = plan.configuration.degrees, plan.workload
    assert job.plan.architecture is not None
    assert job.plan.workload is not None
    if workload is None or plan.architecture is None:
        yield "the plan does not say what it is for"
        return
    ranks = plan.placement.ranks
    if len({(place.node, place.gpu) for place in ranks}) != len(ranks):
        yield "two ranks on one GPU"
    # what runs around losses, or goes on doing so, is not whole
    goes_on = action is RecoveryAction.NONE and ranks == job.plan.placement.ranks
    if len(ranks) != degrees.gpus and action is not RecoveryAction.REROUTE and not goes_on:
        yield f"{len(ranks)} ranks for {degrees}"
    batches = {job.plan.workload.global_batch, job.wanted_batch}
    if workload.global_batch not in batches and not job.recovery.may_change_batch:
        yield f"global batch {workload.global_batch} although it may not change"
    if workload.global_batch % (plan.configuration.micro_batch * degrees.data):
        yield f"global batch {workload.global_batch} does not divide by {degrees.data} replicas"
    asked = PlanningProblem(problem.snapshot, plan.architecture, replace(workload, avoid_nodes=()))
    yield from layer_violations(plan.configuration, asked)
    if action is RecoveryAction.RESHAPE and not job.recovery.may_reshape:
        yield "reshaped although it may not be"
    least, most = job.recovery.least_gpus, job.recovery.most_gpus
    if action is not RecoveryAction.NONE and not least <= len(ranks) <= (most or len(ranks)):
        yield f"{len(ranks)} GPUs, not between {least} and {most}"
