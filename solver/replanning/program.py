"""One option for each job, and every GPU at most once: the integer program of a batch.

Letters: j job, o option of a job, g GPU, p pool of GPUs, c promise about options that nobody has worked out.

    max  sum_o value[o] x[o] + sum_c value[c] y[c]
    s.t. sum_{o of j} x[o] + sum_{c of j} y[c] = 1                                      for every job j
         sum_{o holds g} x[o] + sum_{c holds g} y[c] <= 1                               for every GPU g
         sum_o |holds[o] in p| x[o] + sum_c takes[c, p] y[c] <= |p|                     for every pool p
         sum_o |holds[o]| x[o] + sum_c gpus[c] y[c] <= budget
         x, y binary

Without promises it decides; with them it bounds: a promise stands for options that are worth no more, hold at least
its GPUs and take at least as many of each pool, so every choice among those options has a counterpart here that is
worth no less (docs/replanning.md).  GPUs that the same columns hold share one row.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import numpy as np

from cluster_models.errors import SolverFailed
from solver.ilp import IlpOutcome, IlpStatus, LinearModel, ModelBuilder, solve_integer, solve_relaxation
from solver.problem import Backend
from solver.replanning.problem import RecoveryOption

Gpu = tuple[str, int]
"""A node and the number of a GPU there."""
NODE_LIMIT: Final = 10_000
"""Branch-and-bound nodes of one solve at effort 1."""
TIE_BREAK: Final = 1e-7
"""Share of the objective's size that all GPUs together weigh against options that hold more of them."""


@dataclass(frozen=True, slots=True)
class Promise:
    """No option of a job that it stands for is worth more than ``value_flop``.

    Each of them holds all ``holds`` and takes at least ``takes`` GPUs of each pool named, ``gpus`` in all.
    """

    job_id: str
    value_flop: float
    holds: frozenset[Gpu] = frozenset()
    takes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    gpus: int = 0


_Column = RecoveryOption | Promise


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of all jobs: GPUs in all, and pools of GPUs by name, which may overlap."""

    gpu_budget: int | None = None
    pools: Mapping[str, frozenset[Gpu]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Prices:
    """Optimum of the relaxation and what another GPU, or another unit of the budget, would be worth at most.

    ``jobs``: what a job's choice adds once the GPUs are paid; an option of the job is worth a column where its
    value less the price of its GPUs is more.  GPUs not named cost nothing.
    """

    bound: float
    jobs: Mapping[str, float]
    gpus: Mapping[Gpu, float]
    budget: float

    def reduced(self, option: RecoveryOption) -> float:
        """Worth by which the option beats what its job adds now, in FLOP."""
        paid = sum(self.gpus.get(gpu, 0.0) + self.budget for gpu in option.holds)
        return option.value_flop - paid - self.jobs[option.job_id]


@dataclass(frozen=True, slots=True)
class Choice:
    """One option of each job, by job id; ``bound`` is what no choice of the same program can beat."""

    chosen: Mapping[str, RecoveryOption]
    objective: float
    bound: float
    status: IlpStatus


@dataclass(frozen=True, slots=True)
class Program:
    """The columns (options, then promises), the rows, and the FLOP of one unit of the objective."""

    model: LinearModel
    options: tuple[RecoveryOption, ...]
    jobs: tuple[str, ...]
    shared: tuple[frozenset[Gpu], ...]
    budgeted: bool
    unit: float


def ordered(options: Iterable[RecoveryOption]) -> tuple[RecoveryOption, ...]:
    """The options in an order that does not depend on how they came, those that say the same once."""
    found = {
        (option.job_id, option.action, tuple(sorted(option.holds)), option.value_flop): option for option in options
    }
    return tuple(found[key] for key in sorted(found))


def choose(
    options: Iterable[RecoveryOption],
    limits: Limits,
    *,
    backend: Backend = Backend.CBC,
    time_limit_s: float = 10.0,
    effort: int = 1,
    gap: float = 0.0,
) -> Choice | None:
    """The best choice of one option a job, among equals the one that holds fewer GPUs.

    ``None`` where the back end finds none in its time.  Every job that has an option gets one.  The order of
    ``options`` does not matter.
    """
    program = _program(ordered(options), (), limits, tie_break=TIE_BREAK)
    outcome = solved(program, backend, time_limit_s, effort, gap)
    chosen = chosen_of(program, outcome)
    if chosen is None:
        return None
    objective = math.fsum(option.value_flop for option in chosen.values())
    bound = _upper(program, outcome) + TIE_BREAK * program.unit
    return Choice(chosen, objective, max(objective, bound), outcome.status)


def chosen_of(program: Program, outcome: IlpOutcome) -> dict[str, RecoveryOption] | None:
    """The options taken by job id; ``None`` where the back end found no choice."""
    if outcome.values is None:
        return None
    return {o.job_id: o for o, taken in zip(program.options, outcome.values, strict=True) if taken > 0.5}


@dataclass(frozen=True, slots=True)
class Relaxed:
    """Bound on choices among options and those that promises stand for, and one that would be worth it.

    ``picked`` by job id; empty where the back end found none in its time.
    """

    bound: float
    picked: Mapping[str, RecoveryOption | Promise]


def relaxed(
    options: Iterable[RecoveryOption],
    promises: Iterable[Promise],
    limits: Limits,
    *,
    backend: Backend = Backend.CBC,
    time_limit_s: float = 10.0,
    effort: int = 1,
) -> Relaxed:
    """The best choice of one option or promise a job: its value bounds every choice of options."""
    known, made = ordered(options), tuple(promises)
    program = _program(known, made, limits, tie_break=0.0)
    outcome = solved(program, backend, time_limit_s, effort, 0.0)
    values = np.zeros(len(known) + len(made)) if outcome.values is None else outcome.values
    columns: tuple[_Column, ...] = (*known, *made)
    picked = {each.job_id: each for each, taken in zip(columns, values, strict=True) if taken > 0.5}
    return Relaxed(_upper(program, outcome), picked)


def prices(options: Iterable[RecoveryOption], promises: Iterable[Promise], limits: Limits) -> Prices:
    """The relaxation: its optimum bounds every choice, its duals say what GPUs are worth.

    GPUs that the same columns hold share their row's price evenly: with any other share the same columns pay the
    same.  Raises ``SolverFailed`` where the back end breaks.
    """
    program = _program(ordered(options), tuple(promises), limits, tie_break=0.0)
    outcome = solve_relaxation(program.model)
    if outcome.duals is None:
        raise SolverFailed(f"highs found no relaxation of {len(program.model.cost)} options: {outcome.status}")
    worth = -outcome.duals * program.unit
    first = len(program.jobs)
    gpus: dict[Gpu, float] = defaultdict(float)
    for held, dual in zip(program.shared, worth[first:], strict=False):
        for gpu in held:
            gpus[gpu] += max(0.0, float(dual)) / len(held)
    pools = [limits.pools[name] for name in sorted(limits.pools)]
    for pool, dual in zip(pools, worth[first + len(program.shared) :], strict=False):
        for gpu in pool:
            gpus[gpu] += max(0.0, float(dual))
    return Prices(
        bound=-outcome.bound * program.unit,
        jobs=dict(zip(program.jobs, (float(dual) for dual in worth), strict=False)),
        gpus={gpu: price for gpu, price in gpus.items() if price > 0},
        budget=max(0.0, float(worth[-1])) if program.budgeted else 0.0,
    )


def _program(
    options: tuple[RecoveryOption, ...], promises: tuple[Promise, ...], limits: Limits, *, tie_break: float
) -> Program:
    columns: tuple[_Column, ...] = (*options, *promises)
    unit = _unit(columns)
    held = max(1, sum(len(option.holds) for option in options))
    costs = [-column.value_flop / unit + tie_break * len(column.holds) / held for column in columns]
    return program_of(costs, options, promises, limits, unit=unit)


def program_of(
    costs: Iterable[float],
    options: tuple[RecoveryOption, ...],
    promises: tuple[Promise, ...],
    limits: Limits,
    *,
    unit: float = 1.0,
    losses: Sequence[float] = (),
) -> Program:
    """The rows that every choice keeps, with ``costs`` to make least of, one a column.

    ``losses`` of each option, where they are given, come to 1 together at most.
    """
    columns: tuple[_Column, ...] = (*options, *promises)
    jobs = tuple(sorted({column.job_id for column in columns}))
    builder = ModelBuilder()
    for cost in costs:
        # At most 1 by the row of its job: a limit of its own would take its share of the duals.
        builder.add_columns(1, cost=cost, integer=True)
    of_job: dict[str, list[int]] = {job: [] for job in jobs}
    for index, column in enumerate(columns):
        of_job[column.job_id].append(index)
    for job in jobs:
        builder.add_row([(index, 1.0) for index in of_job[job]], lower=1.0, upper=1.0)
    shared = _shared(columns)
    for indices in shared:
        builder.add_row([(index, 1.0) for index in indices], upper=1.0)
    for name in sorted(limits.pools):
        pool = limits.pools[name]
        terms = [(index, float(len(option.holds & pool))) for index, option in enumerate(options)]
        terms += [(len(options) + index, float(made.takes.get(name, 0))) for index, made in enumerate(promises)]
        builder.add_row(terms, upper=float(len(pool)))
    if limits.gpu_budget is not None:
        terms = [(index, float(len(option.holds))) for index, option in enumerate(options)]
        terms += [(len(options) + index, float(made.gpus)) for index, made in enumerate(promises)]
        builder.add_row(terms, upper=float(limits.gpu_budget))
    if losses:
        builder.add_row(list(enumerate(losses)), upper=1.0)
    budgeted = limits.gpu_budget is not None
    return Program(builder.build(), options, jobs, tuple(shared.values()), budgeted, unit)


def _unit(columns: Sequence[_Column]) -> float:
    """About the size of the objective: the best of every job together, so that it is about 1."""
    best: dict[str, float] = defaultdict(float)
    for column in columns:
        best[column.job_id] = max(best[column.job_id], abs(column.value_flop))
    return sum(best.values()) or 1.0


def _shared(columns: Sequence[_Column]) -> dict[tuple[int, ...], frozenset[Gpu]]:
    """The GPUs that options of several jobs hold, by the columns that hold them."""
    holders: dict[Gpu, list[int]] = defaultdict(list)
    for index, column in enumerate(columns):
        for gpu in column.holds:
            holders[gpu].append(index)
    rows: dict[tuple[int, ...], set[Gpu]] = defaultdict(set)
    for gpu, indices in holders.items():
        if len({columns[index].job_id for index in indices}) > 1:
            rows[tuple(indices)].add(gpu)
    return {indices: frozenset(rows[indices]) for indices in sorted(rows)}


def solved(program: Program, backend: Backend, time_limit_s: float, effort: int, gap: float) -> IlpOutcome:
    """The integer program by ``backend``, in a number of nodes that grows with the effort."""
    limits = {"time_limit_s": time_limit_s, "node_limit": NODE_LIMIT * effort, "gap": gap}
    return solve_integer(program.model, backend=backend, **limits)  # type: ignore[arg-type]  # two floats, one int


def _upper(program: Program, outcome: IlpOutcome) -> float:
    """The back end's bound in FLOP; the relaxation's where it says nothing."""
    bound = outcome.bound if np.isfinite(outcome.bound) else solve_relaxation(program.model).bound
    return -bound * program.unit
