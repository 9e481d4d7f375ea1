"""A second opinion on a fleet plan, derived again from the problem alone; see ``solver.check``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from cluster_models.fleet.jobs import FleetJob, FleetObjective, FleetProblem, Pool
from cluster_models.fleet.plan import FleetPlan, FleetShare
from cluster_models.units import HOUR
from solver.check import check_plan
from solver.problem import PlanningProblem

TOLERANCE: Final = 1e-6


def check_fleet(plan: FleetPlan, problem: FleetProblem) -> tuple[str, ...]:
    """Every rule that ``plan`` breaks as an answer to ``problem``, one sentence each; empty when sound."""
    jobs = {job.name: job for job in problem.jobs}
    pools = {pool.name: pool for pool in problem.pools}
    return (
        *_sharing_rules(plan, problem),
        *(
            broken
            for share in plan.shares
            if share.job in jobs and share.pool in pools
            for broken in _share_rules(share, jobs[share.job], pools[share.pool])
        ),
        *_value_rules(plan, problem),
    )


def _sharing_rules(plan: FleetPlan, problem: FleetProblem) -> Iterator[str]:
    """Each job runs once or waits, on nodes of one pool that no other job has, within the budget."""
    named = Counter((*(share.job for share in plan.shares), *plan.waiting))
    if named != Counter(job.name for job in problem.jobs):
        yield "Not every job of the fleet runs once, or waits."
    if waiting := [job.name for job in problem.jobs if job.must_run and job.name in plan.waiting]:
        yield f"{waiting[0]} waits, though it must run."
    nodes = {pool.name: set(pool.nodes) for pool in problem.pools}
    held = Counter((share.pool, node) for share in plan.shares for node in share.nodes)
    for (pool, node), times in held.items():
        if node not in nodes.get(pool, ()):
            yield f"{node} is not a node of {pool}."
        if times > 1:
            yield f"{node} of {pool} is given to {times} jobs."
    usd = sum(share.usd_per_hour for share in plan.shares)
    if not math.isclose(usd, plan.usd_per_hour, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        yield f"The shares cost {usd} $ an hour, not {plan.usd_per_hour}."
    if problem.budget_usd_per_hour is not None and usd > problem.budget_usd_per_hour * (1 + TOLERANCE):
        yield f"The shares cost {usd} $ an hour, the budget is {problem.budget_usd_per_hour}."


def _share_rules(share: FleetShare, job: FleetJob, pool: Pool) -> Iterator[str]:
    """A job's plan is sound, on its nodes alone, within the job's own limits, and the figures follow from it."""
    hosts = set(share.plan.placement.hosts)
    if hosts - set(share.nodes):
        yield f"The plan of {job.name} uses nodes that it is not given."
    gpus = share.plan.configuration.degrees.gpus
    if gpus != share.gpus or not job.least_gpus <= gpus <= (job.most_gpus or gpus):
        yield f"{job.name} has {gpus} GPUs, outside of its limits or not those stated."
    step_s, per_step = share.plan.time.step_s, job.workload.tokens_per_step
    flops_per_s = share.plan.model_flops_per_s_per_gpu * gpus  # the check of the plan holds it to model and method
    usd = len(share.nodes) * pool.usd_per_node_hour
    lasts_s = None if job.tokens is None else job.tokens / per_step * step_s
    stated = (share.tokens_per_s, share.flops_per_s, share.usd_per_hour, share.ends_after_s, share.usd_in_all)
    cost = None if lasts_s is None else lasts_s / HOUR * usd
    for said, meant in zip(stated, (per_step / step_s, flops_per_s, usd, lasts_s, cost), strict=True):
        if (said is None) is not (meant is None) or not math.isclose(said or 0.0, meant or 0.0, rel_tol=1e-4):
            yield f"A figure of {job.name} is {said}, its plan makes it {meant}."
    if lasts_s is not None and job.deadline_s is not None and lasts_s > job.deadline_s * (1 + TOLERANCE):
        yield f"{job.name} ends after {lasts_s} s, its deadline is {job.deadline_s} s."
    if cost is not None and job.budget_usd is not None and cost > job.budget_usd * (1 + TOLERANCE):
        yield f"{job.name} costs {cost} $, its budget is {job.budget_usd} $."
    yield from _plan_rules(share, job, pool)


def _plan_rules(share: FleetShare, job: FleetJob, pool: Pool) -> Iterator[str]:
    """The plan answers the job's own problem, but for where it may be and what it makes small, and is sound."""
    carried, own = share.plan.workload, job.workload
    if carried is None:
        yield f"The plan of {job.name} does not say its workload."
        return
    alike = replace(
        carried,
        objective=own.objective,
        choice=own.choice,
        max_gpus=own.max_gpus,
        avoid_nodes=own.avoid_nodes,
    )
    if alike != own or not set(own.avoid_nodes) <= set(carried.avoid_nodes):
        yield f"The plan of {job.name} is of another workload."
    if own.max_gpus is not None and share.gpus > own.max_gpus:
        yield f"{job.name} has {share.gpus} GPUs, its workload allows {own.max_gpus}."
    problem = PlanningProblem(pool.snapshot, job.architecture, carried, fitted=job.fitted)
    yield from (f"{job.name}: {broken}" for broken in check_plan(share.plan, problem))


def _value_rules(plan: FleetPlan, problem: FleetProblem) -> Iterator[str]:
    """The objective follows from the shares, and the bound is on its right side."""
    weights = {job.name: job.weight for job in problem.jobs}
    work = sum(weights.get(share.job, 0.0) * share.flops_per_s for share in plan.shares)
    value = work if plan.objective is FleetObjective.WORK else sum(share.usd_per_hour for share in plan.shares)
    if plan.objective is not problem.objective or not math.isclose(value, plan.value, rel_tol=TOLERANCE):
        yield f"The objective is {value}, not {plan.value}."
    beyond = plan.bound - plan.value if plan.objective is FleetObjective.WORK else plan.value - plan.bound
    if beyond < -TOLERANCE * max(plan.value, 1.0):
        yield f"The bound {plan.bound} is worse than the objective {plan.value}."
    gap = abs(plan.bound - plan.value) / plan.value if plan.value else 0.0
    if not math.isclose(gap, plan.gap, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        yield f"The gap is {gap}, not {plan.gap}."
