"""Plans of fleets.

Each option has a step that no plan beats.  The program chooses by the steps of plans where there are some and by
these bounds where there are none; what it chooses gets a plan, until all it chooses has one: nothing else can be
better then.  With bounds alone the same program says what no fleet plan reaches; only what bounds rule out is
refused as impossible.  At last the jobs are planned one after the other on the nodes that are left, the largest
first; those that find none are first in the next round.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cluster_models.errors import SolverFailed
from cluster_models.fleet.jobs import FleetObjective, FleetProblem
from cluster_models.fleet.plan import CurvePoint, FleetPlan, FleetShare, NoFleetPlan, NoFleetReason
from cluster_models.training.plan import NoPlan, Plan, StopReason
from cluster_models.units import HOUR
from solver import search
from solver.fleet.options import Option, duration_s, flops_per_step, options_of, problem_on, settle
from solver.fleet.program import Choice, choose
from solver.ilp import solver_versions
from solver.problem import IsCancelled, OnProgress, Progress, SearchOptions

LEAST_PLAN_S: Final = 0.5
MOST_PLAN_S: Final = 20.0
"""Time limits of the plan of one option."""
PLACING_SHARE: Final = 0.4
"""Share of the time that is left for plans on disjoint nodes."""
PLACING_ROUNDS: Final = 3
PROGRAM_S: Final = 10.0
"""Time limit of one integer program."""


@dataclass(slots=True)
class _Work:
    """State of the search."""

    problem: FleetProblem
    search: SearchOptions
    on_progress: OnProgress | None
    is_cancelled: IsCancelled | None
    started: float = field(default_factory=time.monotonic)
    options: list[Option] = field(default_factory=list)
    plans_made: int = 0

    def left_s(self) -> float:
        return self.search.time_limit_s - (time.monotonic() - self.started)

    def was_cancelled(self) -> bool:
        return self.is_cancelled is not None and self.is_cancelled()

    def must_stop(self) -> bool:
        return self.left_s() <= 0 or self.was_cancelled()

    def tell(self, phase: str, left: int) -> None:
        if self.on_progress is not None:
            elapsed_s = time.monotonic() - self.started
            self.on_progress(Progress(elapsed_s, phase, len(self.options), left, None, None, None, None))

    def plan(self, option: Option, taken: Sequence[str], plans_left: int) -> Plan | None:
        """The plan of an option without nodes that are ``taken``; ``None`` where none fits or it is too small."""
        limit_s = float(np.clip(self.left_s() / max(1, plans_left), LEAST_PLAN_S, MOST_PLAN_S))
        options = replace(self.search, time_limit_s=limit_s, alternatives=0)
        self.plans_made += 1
        problem = problem_on(option.job, option.pool, nodes=option.nodes, taken=taken)
        found = search.plan(problem, options, is_cancelled=self.is_cancelled)
        if isinstance(found, NoPlan) or found.configuration.degrees.gpus < option.job.least_gpus:
            return None
        return found

    def choose(self, step_of: Callable[[Option], float]) -> Choice | None:
        return choose(self.problem, self.options, step_of, backend=self.search.backend, time_limit_s=PROGRAM_S)


def plan_fleet(
    problem: FleetProblem,
    options: SearchOptions,
    *,
    on_progress: OnProgress | None = None,
    is_cancelled: IsCancelled | None = None,
) -> FleetPlan | NoFleetPlan:
    """The best fleet plan found within the time limit, with a bound, or why there is none.

    Raises ``InvalidInput`` where a workload contradicts its model or a pool, ``SolverFailed`` where curves or
    the program need more time.
    """
    work = _Work(problem, options, on_progress, is_cancelled)
    _list_options(work)
    if (refused := _alone(work)) is not None:
        return refused
    must_run = [job.name for job in problem.jobs if job.must_run]
    if work.choose(lambda option: option.bound_step_s) is None:
        return _refusal(work, NoFleetReason.NOT_TOGETHER, must_run)
    chosen, stopped_by = _settled(work)
    shares = [] if chosen is None else _placed(work, chosen)
    by_bounds = work.choose(lambda option: option.bound_step_s)
    if by_bounds is None:  # plans have raised bounds
        return _refusal(work, NoFleetReason.NOT_TOGETHER, must_run)
    running = {share.job for share in shares}
    missing = [job.name for job in problem.jobs if job.name not in running and (job.must_run or not shares)]
    if missing:
        return _refusal(work, NoFleetReason.NOT_FOUND if by_bounds.options else NoFleetReason.NOTHING_RUNS, missing)
    return _concluded(work, shares, by_bounds.bound, stopped_by)


def _list_options(work: _Work) -> None:
    """Every job on every pool that it may pay for."""
    budget = work.problem.budget_usd_per_hour
    for job in work.problem.jobs:
        for pool in work.problem.pools:
            if work.must_stop():
                why = "the search was cancelled" if work.was_cancelled() else "the time limit came"
                raise SolverFailed(f"{why} before all was priced that {job.name} could have; give it more time")
            found = options_of(job, pool, is_time_up=work.must_stop) if pool.nodes else []
            work.options += [each for each in found if budget is None or each.usd_per_hour <= budget]
            work.tell("pricing", len(work.options))


def _alone(work: _Work) -> NoFleetPlan | None:
    """The refusal where some job that must run could not even alone, or none could."""
    for job in work.problem.jobs:
        own = [option for option in work.options if option.job is job]
        if job.must_run and not own:
            return _refusal(work, NoFleetReason.JOB_FITS_NOWHERE, [job.name])
        if job.must_run and not any(option.is_allowed(option.bound_step_s) for option in own):
            return _refusal(work, NoFleetReason.DEADLINE, [job.name])
    if not work.options:
        return _refusal(work, NoFleetReason.NOTHING_RUNS, [job.name for job in work.problem.jobs])
    return None


def _settled(work: _Work) -> tuple[tuple[Option, ...] | None, StopReason]:
    """The best choice among options with plans, made until nothing without one could be better."""
    until = time.monotonic() + (1.0 - PLACING_SHARE) * work.left_s()
    while True:
        found = work.choose(lambda option: option.step_s if option.is_planned else option.bound_step_s)
        open_options = [] if found is None else [option for option in found.options if not option.is_planned]
        if not open_options:
            stopped_by = StopReason.PROVEN if found is None or found.is_best else StopReason.WORK_LIMIT
            break
        if time.monotonic() >= until or work.must_stop():
            stopped_by = StopReason.CANCELLED if work.was_cancelled() else StopReason.TIME_LIMIT
            break
        for number, option in enumerate(open_options):
            if not work.must_stop():
                _plan_option(work, option, len(open_options) - number)
            work.tell("planning", sum(not each.is_planned for each in work.options))
    best = work.choose(lambda option: option.step_s)
    return None if best is None else best.options, stopped_by


def _plan_option(work: _Work, option: Option, plans_left: int) -> None:
    """Make the plan of an option as if its job were alone, and let the others of job and pool know."""
    found = work.plan(option, (), plans_left)
    option.is_planned = True
    if found is not None:
        option.plan, option.step_s = found, min(option.step_s, found.time.step_s)
        option.bound_step_s = max(option.bound_step_s, found.certificate.bound)
    settle([each for each in work.options if each.job is option.job and each.pool is option.pool])


def _placed(work: _Work, chosen: Sequence[Option]) -> list[FleetShare]:
    """Plans on disjoint nodes, those that must run and large ones first; the best of several rounds.

    Jobs that a round leaves without nodes come first in the next one.
    """
    order = sorted(chosen, key=lambda each: (not each.job.must_run, -each.nodes, each.job.name))
    best: list[FleetShare] = []
    for _ in range(PLACING_ROUNDS):
        shares = _placed_in_order(work, order)
        best = max(best, shares, key=lambda each: _merit(work.problem, each))
        running = {share.job for share in shares}
        order.sort(key=lambda each: each.job.name in running)
        if len(running) == len(order) or work.must_stop():
            break
    return best


def _merit(problem: FleetProblem, shares: Sequence[FleetShare]) -> tuple[int, float]:
    """More is better: jobs that must run first, then work; what they cost was settled by the choice."""
    jobs = {job.name: job for job in problem.jobs}
    must_run = sum(jobs[share.job].must_run for share in shares)
    return must_run, sum(jobs[share.job].weight * share.flops_per_s for share in shares)


def _placed_in_order(work: _Work, order: Sequence[Option]) -> list[FleetShare]:
    """A share for each option in turn on the nodes that are left, where its job keeps its limits there.

    A plan that was made as if its job were alone stays where its nodes are free.
    """
    taken: dict[str, list[str]] = defaultdict(list)
    shares = []
    for number, option in enumerate(order):
        used = taken[option.pool.name]
        plan = _alone_plan(work, option)
        if plan is None or set(plan.placement.hosts) & set(used):
            plan = work.plan(option, used, len(order) - number)
        if plan is None or not option.is_allowed(plan.time.step_s):
            continue
        nodes = tuple(dict.fromkeys(plan.placement.hosts))
        used += nodes
        shares.append(_share(option, plan, nodes))
    return shares


def _alone_plan(work: _Work, option: Option) -> Plan | None:
    """The plan whose step the option has: its own, or one on fewer nodes."""
    alike = (each for each in work.options if each.job is option.job and each.pool is option.pool)
    made = [each.plan for each in alike if each.plan is not None and each.nodes <= option.nodes]
    return min(made, key=lambda plan: plan.time.step_s, default=None)


def _share(option: Option, plan: Plan, nodes: tuple[str, ...]) -> FleetShare:
    job, step_s = option.job, plan.time.step_s
    usd_per_hour = len(nodes) * option.pool.usd_per_node_hour
    lasts_s = duration_s(job, step_s)
    return FleetShare(
        job=job.name,
        pool=option.pool.name,
        nodes=nodes,
        gpus=plan.configuration.degrees.gpus,
        plan=plan,
        tokens_per_s=plan.tokens_per_s,
        flops_per_s=flops_per_step(job) / step_s,
        usd_per_hour=usd_per_hour,
        ends_after_s=lasts_s,
        usd_in_all=None if lasts_s is None else lasts_s / HOUR * usd_per_hour,
    )


def _concluded(work: _Work, shares: Sequence[FleetShare], bound: float, stopped_by: StopReason) -> FleetPlan:
    """The fleet plan of shares; a bound that plans on a number of nodes not looked at have passed gives way."""
    problem = work.problem
    weights = {job.name: job.weight for job in problem.jobs}
    running = {share.job for share in shares}
    usd = sum(share.usd_per_hour for share in shares)
    if problem.objective is FleetObjective.WORK:
        value = sum(weights[share.job] * share.flops_per_s for share in shares)
        bound = max(bound, value)
    else:
        value, bound = usd, min(bound, usd)
    return FleetPlan(
        objective=problem.objective,
        shares=tuple(sorted(shares, key=lambda share: share.job)),
        waiting=tuple(job.name for job in problem.jobs if job.name not in running),
        curves=_curves(work.options),
        value=value,
        bound=bound,
        gap=abs(bound - value) / value if value else 0.0,
        usd_per_hour=usd,
        stopped_by=stopped_by,
        plans_made=work.plans_made,
        solver=f"{work.search.backend} {solver_versions()['pulp']}",
    )


def _curves(options: Sequence[Option]) -> tuple[CurvePoint, ...]:
    return tuple(
        CurvePoint(
            option.job.name,
            option.pool.name,
            option.nodes,
            option.gpus,
            option.bound_step_s,
            option.step_s if option.is_planned and np.isfinite(option.step_s) else None,
        )
        for option in options
    )


def _refusal(work: _Work, reason: NoFleetReason, jobs: Sequence[str]) -> NoFleetPlan:
    return NoFleetPlan(reason, tuple(jobs), _curves(work.options))
