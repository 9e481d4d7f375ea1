"""The integer program of a fleet.  Letters: ``o`` an option, ``j`` a job, ``p`` a pool.

max  sum_o value[o] x[o]   (work), or   min  sum_o usd[o] x[o]   (cost)
s.t. sum_{o of j} x[o] <= 1  (= 1 where j must run);   sum_{o on p} nodes[o] x[o] <= nodes[p];
     sum_o usd[o] x[o] <= budget;   x binary.

Among plans with equal work the cheaper is taken, at equal cost the one with more work: both objectives carry the
other one with a weight below any difference that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.errors import SolverFailed
from cluster_models.fleet.jobs import FleetObjective, FleetProblem
from solver.fleet.options import Option
from solver.ilp import IlpStatus, ModelBuilder, solve_integer
from solver.problem import Backend

NODES: Final = 100_000
"""Most nodes of the solver's search tree."""
TIE: Final = 1e-6
"""Weight of the other objective, over the sizes of both."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Options to take together, and a bound on the objective of every choice; ``is_best``: the two meet."""

    options: tuple[Option, ...]
    bound: float
    is_best: bool


def choose(
    problem: FleetProblem,
    options: Sequence[Option],
    step_of: Callable[[Option], float],
    *,
    backend: Backend,
    time_limit_s: float,
) -> Choice | None:
    """The best choice if each option had the step ``step_of`` says.

    ``None`` where not all jobs that must run can.  Raises ``SolverFailed`` where the program is not solved in time.
    """
    allowed = [option for option in options if option.is_allowed(step_of(option))]
    if not allowed:
        return None if any(job.must_run for job in problem.jobs) else Choice((), 0.0, is_best=True)
    work = np.array([option.work(step_of(option)) for option in allowed])
    usd = np.array([option.usd_per_hour for option in allowed])
    maximises = problem.objective is FleetObjective.WORK
    sizes = max(float(work.max()), 1e-300), max(float(usd.max()), 1.0)
    own, other = (-work / sizes[0], usd / sizes[1]) if maximises else (usd / sizes[1], -work / sizes[0])
    model = ModelBuilder()
    columns = [
        int(model.add_columns(1, upper=1.0, cost=cost, integer=True)[0]) for cost in (own + TIE * other).tolist()
    ]
    for job in problem.jobs:
        terms = [(columns[i], 1.0) for i, option in enumerate(allowed) if option.job is job]
        if not terms and job.must_run:
            return None
        if terms:
            model.add_row(terms, lower=1.0 if job.must_run else 0.0, upper=1.0)
    for pool in problem.pools:
        terms = [(columns[i], float(option.nodes)) for i, option in enumerate(allowed) if option.pool is pool]
        if terms:
            model.add_row(terms, upper=float(len(pool.nodes)))
    if usd.any() and problem.budget_usd_per_hour is not None:
        terms = [(column, cost) for column, cost in zip(columns, usd.tolist(), strict=True) if cost]
        model.add_row(terms, upper=problem.budget_usd_per_hour)
    outcome = solve_integer(
        model.build(),
        backend=backend,
        time_limit_s=time_limit_s,
        node_limit=NODES,
        expected=float(len(problem.jobs)),
    )
    if outcome.status is IlpStatus.INFEASIBLE:
        return None
    if outcome.values is None:
        raise SolverFailed("the program of the fleet was not solved in its time; give more with --time-limit")
    taken = tuple(option for option, x in zip(allowed, outcome.values.tolist(), strict=True) if x > 0.5)
    # The bound holds for the sum of both objectives: the other one lies in 0..jobs (money) or -jobs..0 (work).
    own_bound = outcome.bound - (TIE * len(problem.jobs) if maximises else 0.0)
    bound = -own_bound * sizes[0] if maximises else max(0.0, own_bound * sizes[1])
    return Choice(taken, bound, outcome.status is IlpStatus.OPTIMAL)
