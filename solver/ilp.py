"""Linear and integer programs: the only module that talks to PuLP and HiGHS.

A program is built as arrays (``ModelBuilder``), relaxed with HiGHS, and solved over the integers with CBC or
HiGHS behind PuLP.  The status that a back end reports is never believed: *optimal* means that our own recomputed
gap is closed (PuLP 3.3 says "Optimal" for a CBC run that hit its time limit).
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import highspy
import numpy as np
import pulp

from cluster_models.errors import SolverFailed
from solver.candidates import BoolArray, FloatArray, IntArray
from solver.problem import Backend

INTEGRALITY_TOLERANCE: Final = 1e-5
OPTIMALITY_TOLERANCE: Final = 1e-6
OBJECTIVE_SIZE: Final = 1e4
PRINTED_ERROR: Final = 5e-4
"""Half the last decimal of CBC's printed bound."""
Terms = Sequence[tuple[int, float]]
"""A linear expression: columns with their factors."""

_LOWER_BOUND: Final = re.compile(r"^(?:Lower bound:|Continuous objective value is)\s*([-+0-9.eE]+)", re.MULTILINE)
_version = cache(version)


class IlpStatus(StrEnum):
    """Outcome of an integer program."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    NO_SOLUTION = "no_solution"


@dataclass(frozen=True, slots=True)
class LinearModel:
    """``min cost·x`` subject to ``row_lower <= A x <= row_upper`` and ``lower <= x <= upper``.

    ``A`` is given by triplets ``(row, column, value)``; ``integer`` marks the columns that must be whole.
    """

    cost: FloatArray
    lower: FloatArray
    upper: FloatArray
    integer: BoolArray
    row: IntArray
    column: IntArray
    value: FloatArray
    row_lower: FloatArray
    row_upper: FloatArray


@dataclass(frozen=True, slots=True)
class IlpOutcome:
    """Answer of one solve; ``values`` is ``None`` when there is no feasible point to read.

    ``bound`` holds for every feasible point, ``-inf`` when the back end proved nothing.  ``reduced`` of a
    relaxation: by how much raising a column from its lower bound by 1 raises the objective at least; ``duals``: by
    how much raising the bound of a row by 1 raises the objective, to first order.
    """

    status: IlpStatus
    values: FloatArray | None
    objective: float
    bound: float
    seconds: float
    reduced: FloatArray | None = None
    duals: FloatArray | None = None


@dataclass(slots=True)
class ModelBuilder:
    """Collects the columns and rows of one program."""

    _columns: list[tuple[FloatArray, FloatArray, FloatArray, BoolArray]] = field(default_factory=list)
    _triplets: list[tuple[IntArray, IntArray, FloatArray]] = field(default_factory=list)
    _rows: list[tuple[float, float]] = field(default_factory=list)
    _column_count: int = 0
    _row_count: int = 0

    def add_columns(
        self,
        count: int,
        *,
        lower: float = 0.0,
        upper: float = np.inf,
        cost: float = 0.0,
        integer: bool = False,
    ) -> IntArray:
        """Indices of ``count`` new columns with the same bounds and cost."""
        first = self._column_count
        self._column_count += count
        self._columns.append(
            (np.full(count, cost), np.full(count, lower), np.full(count, upper), np.full(count, integer))
        )
        return np.arange(first, first + count)

    def add_row(self, terms: Terms, *, lower: float = -np.inf, upper: float = np.inf) -> int:
        """Add the row ``lower <= sum factor * x[column] <= upper``, a column more than once or not; its number."""
        columns = np.array([column for column, _ in terms], dtype=np.int64)
        factors = np.array([factor for _, factor in terms], dtype=np.float64)
        distinct, inverse = np.unique(columns, return_inverse=True)
        self._triplets.append(
            (
                np.full(len(distinct), self._row_count),
                distinct,
                np.bincount(inverse, weights=factors).astype(np.float64),
            )
        )
        self._rows.append((lower, upper))
        self._row_count += 1
        return self._row_count - 1

    def build(self) -> LinearModel:
        """The program as it stands; more rows may be added afterwards for the next one."""
        cost, lower, upper, integer = (np.concatenate(part) for part in zip(*self._columns, strict=True))
        row, column, value = (np.concatenate(part) for part in zip(*self._triplets, strict=True))
        row_lower, row_upper = (np.array(part) for part in zip(*self._rows, strict=True))
        return LinearModel(cost, lower, upper, integer, row, column, value, row_lower, row_upper)


def solver_versions() -> dict[str, str]:
    """Versions of the back ends, for the provenance of a plan."""
    return {"pulp": _version("pulp"), "highs": _version("highspy"), "cbc": "as shipped with pulp"}


def solve_relaxation(
    model: LinearModel, *, time_limit_s: float = np.inf, iteration_limit: int | None = None
) -> IlpOutcome:
    """The program without its integrality, by HiGHS on one thread.

    A run that hits a limit proves nothing: its ``bound`` is ``-inf``.
    """
    started = time.perf_counter()
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", max(0.01, time_limit_s))
    if iteration_limit is not None:
        solver.setOptionValue("simplex_iteration_limit", iteration_limit)
    solver.passModel(_highs_model(model))
    solver.run()
    seconds = time.perf_counter() - started
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kOptimal:
        solution = solver.getSolution()
        objective = float(solver.getInfo().objective_function_value)
        reduced = np.maximum(0.0, np.asarray(solution.col_dual))
        values, duals = np.asarray(solution.col_value), np.asarray(solution.row_dual)
        return IlpOutcome(IlpStatus.OPTIMAL, values, objective, objective, seconds, reduced, duals)
    if status == highspy.HighsModelStatus.kInfeasible:
        return IlpOutcome(IlpStatus.INFEASIBLE, None, np.inf, np.inf, seconds)
    return IlpOutcome(IlpStatus.NO_SOLUTION, None, np.inf, -np.inf, seconds)


def solve_integer(
    model: LinearModel,
    *,
    backend: Backend,
    time_limit_s: float,
    node_limit: int,
    gap: float = 0.0,
    expected: float = 1.0,
) -> IlpOutcome:
    """The integer program by CBC or HiGHS through PuLP, on one thread (CBC with more is not repeatable).

    ``expected`` is the size of the objective, by which it is scaled: CBC prints its bound with three decimals.
    Raises ``SolverFailed`` when the back end breaks.
    """
    started = time.perf_counter()
    scale = OBJECTIVE_SIZE / expected
    problem, variables = _pulp_problem(model, scale)
    limit = max(0.05, time_limit_s)
    with tempfile.TemporaryDirectory(prefix="meshwright-") as folder:
        log = Path(folder) / "solver.log"
        try:
            if backend is Backend.CBC:
                command = pulp.PULP_CBC_CMD(
                    msg=False,
                    timeLimit=limit,
                    gapRel=gap,
                    threads=1,
                    maxNodes=node_limit,
                    logPath=str(log),
                    timeMode="elapsed",
                )
            else:
                command = pulp.HiGHS(msg=False, timeLimit=limit, gapRel=gap, threads=1, mip_max_nodes=node_limit)
            problem.solve(command)
        except pulp.PulpSolverError as error:
            message = f"{backend} broke on a program of {len(model.cost)} columns: {error}"
            raise SolverFailed(message) from error
        text = log.read_text(errors="replace") if log.exists() else ""
    seconds = time.perf_counter() - started
    bound = (_cbc_bound(text) if backend is Backend.CBC else _highs_bound(problem)) / scale
    return _outcome(problem, variables, model, bound, seconds)


def _outcome(
    problem: pulp.LpProblem,
    variables: list[pulp.LpVariable],
    model: LinearModel,
    bound: float,
    seconds: float,
) -> IlpOutcome:
    if problem.status == pulp.LpStatusInfeasible:
        return IlpOutcome(IlpStatus.INFEASIBLE, None, np.inf, np.inf, seconds)
    has_solution = problem.sol_status in {pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible}
    values = np.array([variable.varValue if variable.varValue is not None else np.nan for variable in variables])
    whole = values[model.integer]
    fractional = np.isnan(values).any() or (np.abs(whole - np.round(whole)) > INTEGRALITY_TOLERANCE).any()
    if not has_solution or fractional:
        return IlpOutcome(IlpStatus.NO_SOLUTION, None, np.inf, bound, seconds)
    values[model.integer] = np.round(whole)
    objective = float(model.cost @ values)
    if problem.sol_status == pulp.LpSolutionOptimal and not np.isfinite(bound):
        bound = objective
    closed = objective - bound <= OPTIMALITY_TOLERANCE * max(1.0, abs(objective))
    status = IlpStatus.OPTIMAL if closed else IlpStatus.FEASIBLE
    return IlpOutcome(status, values, objective, min(bound, objective), seconds)


def _cbc_bound(log: str) -> float:
    """The proven bound in CBC's log; ``inf`` when it closed the tree, where the log prints none."""
    if "Result - Optimal solution found" in log and "Lower bound:" not in log:
        return np.inf
    found = _LOWER_BOUND.findall(log)
    return float(found[-1]) - PRINTED_ERROR if found else -np.inf


def _highs_bound(problem: pulp.LpProblem) -> float:
    return float(problem.solverModel.getInfo().mip_dual_bound)


def _highs_model(model: LinearModel) -> highspy.HighsLp:
    """The same arrays column-wise, as HiGHS wants them."""
    order = np.lexsort((model.row, model.column))
    lp = highspy.HighsLp()
    lp.num_col_ = len(model.cost)
    lp.num_row_ = len(model.row_lower)
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = model.cost, model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = model.row_lower, model.row_upper
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(model.column[order], np.arange(lp.num_col_ + 1))
    lp.a_matrix_.index_ = model.row[order]
    lp.a_matrix_.value_ = model.value[order]
    return lp


def _pulp_problem(model: LinearModel, scale: float) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    problem = pulp.LpProblem("placement", pulp.LpMinimize)
    variables = [
        pulp.LpVariable(
            f"x{index}",
            lower if np.isfinite(lower) else None,
            upper if np.isfinite(upper) else None,
            pulp.LpInteger if integer else pulp.LpContinuous,
        )
        for index, (lower, upper, integer) in enumerate(
            zip(model.lower.tolist(), model.upper.tolist(), model.integer.tolist(), strict=True)
        )
    ]
    problem += pulp.LpAffineExpression(
        {variables[index]: scale * float(model.cost[index]) for index in np.flatnonzero(model.cost)}
    )
    order = np.argsort(model.row, kind="stable")
    starts = np.searchsorted(model.row[order], np.arange(len(model.row_lower) + 1))
    columns, values = model.column[order].tolist(), model.value[order].tolist()
    for row, (lower, upper) in enumerate(zip(model.row_lower.tolist(), model.row_upper.tolist(), strict=True)):
        span = range(starts[row], starts[row + 1])
        expression = pulp.LpAffineExpression({variables[columns[entry]]: values[entry] for entry in span})
        if lower == upper:
            problem += expression == lower
            continue
        if np.isfinite(lower):
            problem += expression >= lower
        if np.isfinite(upper):
            problem += expression <= upper
    return problem, variables
