"""Solution of the program of ``solver.serving.planning.program``: column generation, then branch and cut."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from solver.candidates import BoolArray
from solver.ilp import IlpOutcome, IlpStatus, LinearModel, solve_integer, solve_relaxation
from solver.problem import Backend
from solver.serving.loads import FloatArray
from solver.serving.planning.program import Program

NODE_LIMIT: Final = 200_000
FIRST_GROUPS: Final = 40
"""Groups of each model, the best by the relaxation, among which a choice is sought first."""
FIRST_LOADS: Final = 8
"""Loads of each, likewise."""
WHOLE: Final = 1e-4
"""Rounding of an objective that moves in steps, as a share of one."""
OPTIMALITY: Final = 1e-7
"""Share of the objective by which a column must lower the relaxation to be taken in."""


@dataclass(frozen=True, slots=True, eq=False)
class Solved:
    """The outcome, the objective of the relaxation, and by how much one of each group (J,) raises that at least."""

    program: Program
    outcome: IlpOutcome
    relaxed: float
    worth: FloatArray


def solve(program: Program, *, backend: Backend, gap: float, time_limit_s: float, step: float = 0.0) -> Solved:
    """The best choice, with a bound that no choice beats; any better one is so by ``step`` at least.

    First among the groups and loads that the relaxation likes best.  Then those are left out whose reduced cost
    alone exceeds what is missing to the relaxation: no better choice has one of them.
    """
    started = time.perf_counter()

    def left_s() -> float:
        return time_limit_s - (time.perf_counter() - started)

    relaxed, reduced = relaxation(program, left_s)
    if relaxed.values is None:
        return Solved(program, relaxed, relaxed.bound, np.zeros(len(program.number)))
    worth = _worth(program, reduced)

    def among(columns: BoolArray) -> IlpOutcome:
        return solve_integer(
            _only(program, columns),
            backend=backend,
            time_limit_s=left_s(),
            node_limit=NODE_LIMIT,
            gap=gap,
            expected=max(abs(relaxed.objective), 1e-9),
        )

    first = _likely(program, reduced, worth)
    best = among(first)
    missing = best.objective - step - relaxed.objective
    if best.values is not None and missing + step <= max(gap * abs(best.objective), step * (1 - WHOLE)):
        return Solved(program, replace(best, bound=relaxed.objective), relaxed.objective, worth)
    useful = _columns(program, worth <= missing) & (reduced <= missing)
    if not (useful <= first).all():
        second = among(first | useful)
        best = replace(min(second, best, key=lambda each: each.objective), bound=min(second.bound, best.objective))
    return Solved(program, replace(best, bound=max(relaxed.objective, best.bound)), relaxed.objective, worth)


def relaxation(program: Program, left_s: Callable[[], float]) -> tuple[IlpOutcome, FloatArray]:
    """The relaxation, and the reduced costs of all columns.

    By column generation: it starts with a few loads of each group, and takes in the best load of every group that
    the duals of the rows say would lower the objective, until there is none.
    """
    model = program.model
    active = np.ones(len(model.cost), dtype=bool)
    for own in program.at_load:
        active[own] = False
        active[own[[0, len(own) // 2, -1]] if len(own) else own] = True
    while True:
        outcome = solve_relaxation(_only(program, active), time_limit_s=left_s())
        if outcome.status is IlpStatus.INFEASIBLE and not active.all():
            active[:] = True
            continue
        if outcome.values is None or outcome.duals is None:
            return outcome, np.zeros(len(active))
        priced = np.bincount(model.column, model.value * outcome.duals[model.row], minlength=len(active))
        reduced = model.cost - priced
        missing = OPTIMALITY * max(1.0, abs(outcome.objective))
        better = [
            own[np.argmin(reduced[own])]
            for own in program.at_load
            if len(own) and reduced[own].min() < -missing and not active[own[np.argmin(reduced[own])]]
        ]
        if not better:
            return outcome, np.maximum(reduced, 0.0)
        active[better] = True


def _worth(program: Program, reduced: FloatArray) -> FloatArray:
    """Least rise of the relaxation by one of each group."""
    return np.array(
        [
            float(reduced[number]) + (float(reduced[loads].min()) if len(loads) else 0.0)
            for number, loads in zip(program.number, program.at_load, strict=True)
        ]
    )


def _likely(program: Program, reduced: FloatArray, worth: FloatArray) -> BoolArray:
    """Columns of the best groups of each model at their best loads."""
    groups = np.zeros(len(worth), dtype=bool)
    for model in np.unique(program.served):
        own = np.flatnonzero(program.served == model)
        groups[own[np.argsort(worth[own], kind="stable")[:FIRST_GROUPS]]] = True
    columns = _columns(program, groups)
    for loads in program.at_load:
        columns[loads[np.argsort(reduced[loads], kind="stable")[FIRST_LOADS:]]] = False
    return columns


def _columns(program: Program, groups: BoolArray) -> BoolArray:
    """All columns but those of the other groups."""
    columns = np.ones(len(program.model.cost), dtype=bool)
    for j in np.flatnonzero(~groups):
        columns[program.number[j]] = False
        columns[program.at_load[j]] = False
    return columns


def _only(program: Program, columns: BoolArray) -> LinearModel:
    """The program with all but ``columns`` at 0."""
    return replace(program.model, upper=np.where(columns, program.model.upper, 0.0))
