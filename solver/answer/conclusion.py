"""What a finished search says: the plan, its certificate, and why the next best lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from cluster_models.plan import TIME_PARTS, Alternative, Certificate, Plan, StopReason, TimeBreakdown
from solver.answer.assemble import assemble_plan, configuration_of
from solver.answer.robustness import Contender, Drift, drift_of, robustness
from solver.answer.time_account import time_breakdown
from solver.candidates import RECOMPUTE_CODES, SHARDING_CODES, CandidateBatch
from solver.ilp import solver_versions
from solver.placement.build import degrees_of
from solver.placement.problem import placed_times
from solver.problem import Backend, PlanningProblem, SearchOptions
from solver.refine import Candidate, place
from solver.search_state import SearchState

NOTICEABLE: Final = 5e-5
"""Differences below this share of the step are not worth a word."""
RUNNER_UP_ROUNDS: Final = 2
_UNITS: Final = ", each candidate in the widest units of an NVLink domain that it fills"
_MIXES: Final = ", and mixes of GPU kinds whose faster GPUs take as many stages as they can"
_ENDS: Final = {
    StopReason.PROVEN: "Every other candidate and placement is ruled out to within {percent:.2f} % of this plan.",
    StopReason.WORK_LIMIT: "The search used up its effort; what is left may be up to {percent:.2f} % better.",
    StopReason.TIME_LIMIT: "The time limit ended the search; what is left may be up to {percent:.2f} % better.",
    StopReason.CANCELLED: "The search was cancelled; what is left may be up to {percent:.2f} % better.",
}


def describe(batch: CandidateBatch, index: int) -> str:
    """One row of candidates in a practitioner's shorthand."""
    row = batch.take(np.array([index]))
    recompute, sharding = RECOMPUTE_CODES[int(row.recompute[0])], SHARDING_CODES[int(row.sharding[0])]
    return f"{degrees_of(row)} mbs{int(row.micro_batch[0])} recompute {recompute} sharding {sharding}"


def place_runners_up(
    problem: PlanningProblem,
    options: SearchOptions,
    state: SearchState,
    count: int,
    remaining_s: Callable[[], float],
) -> None:
    """Place the ``count`` next-best sets of degrees that pruning left unplaced; one may turn out best."""
    for _ in range(RUNNER_UP_ROUNDS):
        for index in _next_best(state, count):
            if not _is_placed(state, index):
                candidate = state.prepared(problem, index)
                state.placed(index, place(candidate, options, remaining_s=remaining_s))


def _is_placed(state: SearchState, index: int) -> bool:
    return index in state.known and state.known[index].assignment is not None


def conclude(problem: PlanningProblem, options: SearchOptions, state: SearchState, stopped_by: StopReason) -> Plan:
    """The best plan of a search that has found one."""
    assert state.best is not None
    assignment = state.known[state.best].assignment
    assert assignment is not None
    certificate = _certificate(state, options, stopped_by, ruled=bool(problem.workload.placement))
    candidate = state.prepared(problem, state.best)
    rivals = _next_best(state, options.alternatives, placed_only=True)
    plan = assemble_plan(problem, options, candidate, assignment, certificate=certificate)
    drift = drift_of(problem, options.seed, state.candidates.batch.take(np.array([state.best, *rivals])))
    contender = _contender(drift, candidate, state, state.best)
    spread = drift.spread_of(candidate, assignment)
    del candidate  # one candidate at a time: its matrices are large
    others, contenders = [], []
    for index in rivals:
        other = state.prepared(problem, index)
        others.append(_placed_alternative(state, index, other, plan.time))
        contenders.append(_contender(drift, other, state, index))
    others += _misfits(problem, state, plan.time)
    return replace(plan, alternatives=tuple(others), robustness=robustness(contender, contenders, spread))


def _certificate(state: SearchState, options: SearchOptions, stopped_by: StopReason, *, ruled: bool) -> Certificate:
    objective, bound = state.best_objective, max(0.0, state.bound)
    gap = (objective - bound) / objective
    infeasible = int((state.candidates.excess_bytes > 0).sum())
    placed = sum(_is_placed(state, index) for index in state.known)
    versions = solver_versions()
    solver = f"HiGHS {versions['highs']}" if options.backend is Backend.HIGHS else f"CBC (PuLP {versions['pulp']})"
    mixes = _MIXES if any(fabric.is_mixed for fabric in state.fabrics) else ""
    units = _UNITS if any(fabric.wider for fabric in state.fabrics) else ""
    kept = " that keep the rules of workload.placement" if ruled else ""
    explanation = _ENDS[stopped_by].format(percent=100 * gap) + (
        f" The proof covers all legal degrees and host orders{kept} under the cost model{units}{mixes}, with stage"
        " layers balanced by rule; it says nothing about the error of the cost model itself."
    )
    return Certificate(
        objective=objective,
        bound=bound,
        gap=gap,
        stopped_by=stopped_by,
        candidates_total=len(state.candidates),
        candidates_infeasible=infeasible,
        candidates_pruned=len(state.candidates) - infeasible - placed,
        candidates_placed=placed,
        solver=solver,
        explanation=explanation,
    )


def _contender(drift: Drift, candidate: Candidate, state: SearchState, index: int) -> Contender:
    """The best placement known of ``candidate``, number ``index``, when links change."""
    assignment = state.known[index].assignment
    assert assignment is not None
    steps = drift.step_s(candidate, assignment)
    return Contender(str(degrees_of(candidate.batch)), steps, float(state.candidates.weight[index]))


def _placed_alternative(state: SearchState, index: int, candidate: Candidate, best: TimeBreakdown) -> Alternative:
    """The best placement known of ``candidate``, number ``index``, beside the plan."""
    assignment = state.known[index].assignment
    assert assignment is not None
    times = placed_times(candidate.placement, assignment)
    return _alternative(candidate, time_breakdown(candidate, times), best)


def _misfits(problem: PlanningProblem, state: SearchState, best: TimeBreakdown) -> Iterator[Alternative]:
    """The nearest faster miss of the memory limit, if there is one."""
    misfit = _nearest_misfit(state, best.step_s)
    if misfit is not None:
        yield _too_large(state.prepared(problem, misfit), float(state.candidates.bound_s[misfit]), best.step_s)


def _next_best(state: SearchState, count: int, *, placed_only: bool = False) -> list[int]:
    """Candidates with distinct degrees after the plan's own, by the objective placed or else by their bound."""
    value = state.candidates.bound_s * state.candidates.weight
    if placed_only:
        value[:] = np.inf
    for index in state.known:
        if _is_placed(state, index):
            value[index] = state.objective(index)
    value[state.candidates.excess_bytes > 0] = np.inf
    assert state.best is not None
    seen = {degrees_of(state.candidates.batch.take(np.array([state.best])))}
    chosen: list[int] = []
    for index in np.argsort(value, kind="stable"):
        if len(chosen) == count or not np.isfinite(value[index]):
            break
        degrees = degrees_of(state.candidates.batch.take(np.array([index])))
        if degrees not in seen:
            seen.add(degrees)
            chosen.append(int(index))
    return chosen


def _alternative(candidate: Candidate, time: TimeBreakdown, best: TimeBreakdown) -> Alternative:
    slower = time.step_s / best.step_s - 1
    differences = {name: getattr(time, part) - getattr(best, part) for part, name in TIME_PARTS.items()}
    noticeable = [(seconds, name) for name, seconds in differences.items() if seconds > NOTICEABLE * best.step_s]
    costs = ", ".join(f"{name} +{_duration(seconds)}" for seconds, name in sorted(noticeable, reverse=True)[:2])
    lead = f"{100 * abs(slower):.2f} % slower"
    if slower < 0:
        lead = f"{100 * abs(slower):.2f} % faster per step but worse by the objective"
    if abs(slower) < NOTICEABLE:
        lead, costs = "As fast as the plan", ""
    return Alternative(
        configuration=configuration_of(candidate),
        step_s=time.step_s,
        slower_by=slower,
        peak_memory_bytes=float(candidate.memory.total_bytes[0].max()),
        reason=f"{lead}: {costs}." if costs else f"{lead}.",
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.1f} ms"


def _nearest_misfit(state: SearchState, step_s: float) -> int | None:
    """Of the candidates that memory rules out but that could be faster, the one that misses by least."""
    faster = (state.candidates.excess_bytes > 0) & (state.candidates.bound_s < step_s)
    if not faster.any():
        return None
    return int(np.where(faster, state.candidates.excess_bytes, np.inf).argmin())


def _too_large(candidate: Candidate, bound_s: float, best_s: float) -> Alternative:
    total, limit = candidate.memory.total_bytes[0], candidate.memory.limit_bytes[0]
    stage = int((total - limit).argmax())
    return Alternative(
        configuration=configuration_of(candidate),
        step_s=bound_s,
        slower_by=bound_s / best_s - 1,
        peak_memory_bytes=float(total.max()),
        reason=(
            f"Does not fit: stage {stage} needs {total[stage] / 2**30:.1f} GiB of {limit[stage] / 2**30:.1f} GiB "
            f"(at best {bound_s:.2f} s a step)."
        ),
    )
