"""Answer of a finished search: the plan, its certificate, and why the next best lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from cluster_models.training.plan import Alternative, Certificate, Plan, StopReason
from cluster_models.training.recompute import recomputation_words
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.selection import Selection
from solver.answer.alternatives import (
    cheapest_trial,
    close_calls,
    is_placed,
    misfits,
    next_best,
    placed_alternative,
)
from solver.answer.assemble import assemble_plan
from solver.answer.choice import Chosen
from solver.answer.coverage import limits
from solver.answer.robustness import Contender, Drift, drift_of, robustness
from solver.answer.trade_offs import trade_offs
from solver.candidates import SHARDING_CODES, CandidateBatch, recomputation_of
from solver.degrees.priced import LeftOut
from solver.ilp import solver_versions
from solver.placement.build import degrees_of
from solver.problem import Backend, PlanningProblem, SearchOptions
from solver.refine import Candidate
from solver.search_state import SearchState


def describe(batch: CandidateBatch, index: int) -> str:
    """One row of candidates in a practitioner's shorthand."""
    row = batch.take(np.array([index]))
    recompute, sharding = recomputation_words(*recomputation_of(row)), SHARDING_CODES[int(row.sharding[0])]
    schedule = "" if row.runs is PipelineSchedule.ONE_F_ONE_B else f" schedule {row.runs}"
    return f"{degrees_of(row)} mbs{int(row.micro_batch[0])} recompute {recompute} sharding {sharding}{schedule}"


def conclude(
    problem: PlanningProblem,
    options: SearchOptions,
    state: SearchState,
    stopped_by: StopReason,
    chosen: Chosen,
    remaining_s: Callable[[], float],
) -> Plan:
    """The plan of the candidate ``chosen``, after a search that has found one.

    Alternatives, and the lead when links drift, are added while time remains.
    """
    index = chosen.index
    assignment = state.known[index].assignment
    assert assignment is not None
    certificate = certificate_of(problem, options, state, stopped_by)
    candidate = state.prepared(problem, index)
    rivals = next_best(state, index, options.alternatives, placed_only=True)
    plan = assemble_plan(problem, options, candidate, assignment, certificate=certificate)
    drift = drift_of(problem, options.seed, state.candidates.batch.take(np.array([index, *rivals])))
    contender = _contender(drift, candidate, state, index) if remaining_s() > 0 else None
    spread = drift.spread_of(candidate, assignment)
    del candidate  # one candidate at a time: its matrices are large
    others: list[Alternative] = []
    contenders: list[Contender] = []
    for rival in rivals:
        is_late = remaining_s() <= 0
        if is_late and (others or index == state.best):
            break
        other = state.prepared(problem, rival)
        others.append(placed_alternative(state, rival, other, index, plan.time))
        if not is_late:
            contenders.append(_contender(drift, other, state, rival))
    rivals = rivals[: len(others)]
    if remaining_s() > 0:
        others += misfits(problem, state, plan.time)
    return replace(
        plan,
        alternatives=tuple(others),
        trade_offs=trade_offs(state.candidates),
        robustness=None if contender is None else robustness(contender, contenders, spread),
        selection=_selection(state, chosen, rivals, replace(plan, alternatives=tuple(others))),
    )


def _selection(state: SearchState, chosen: Chosen, rivals: Sequence[int], plan: Plan) -> Selection:
    """Why the plan was taken, and which of its alternatives, the candidates ``rivals``, may be better in truth."""
    calls = close_calls(state, chosen.index, rivals)
    is_best = chosen.index == state.best
    return Selection(
        choice=chosen.choice,
        given_up=0.0 if is_best else state.objective(chosen.index) / state.best_objective - 1,
        fastest=None if is_best else 0,
        simpler=chosen.simpler,
        close_calls=calls,
        trial=cheapest_trial(calls, (plan.time.step_s, plan.configuration.degrees.gpus), plan.alternatives),
        regret=chosen.regret,
        fastest_regret=chosen.best_regret,
    )


def certificate_of(
    problem: PlanningProblem, options: SearchOptions, state: SearchState, stopped_by: StopReason
) -> Certificate:
    """Certificate of the best plan found: how far the search proved it."""
    objective, bound = state.best_objective, max(0.0, state.bound)
    gap = (objective - bound) / objective
    candidates = state.candidates
    left = candidates.left if state.is_late(state.target(options)) else LeftOut()
    placed = sum(is_placed(state, index) for index in state.known)
    versions = solver_versions()
    solver = f"HiGHS {versions['highs']}" if options.backend is Backend.HIGHS else f"CBC (PuLP {versions['pulp']})"
    return Certificate(
        objective=objective,
        bound=bound,
        gap=gap,
        stopped_by=stopped_by,
        candidates_total=candidates.total,
        candidates_infeasible=candidates.infeasible,
        candidates_pruned=candidates.total - candidates.infeasible - placed - left.unpriced,
        candidates_placed=placed,
        solver=solver,
        limits=tuple(limits(problem, state.fabrics)),
        unpriced=left.unpriced,
        unlisted=left.worlds,
    )


def _contender(drift: Drift, candidate: Candidate, state: SearchState, index: int) -> Contender:
    """The best placement known of ``candidate``, number ``index``, when links change."""
    assignment = state.known[index].assignment
    assert assignment is not None
    steps = drift.step_s(candidate, assignment)
    return Contender(steps, float(state.candidates.weight[index]))
