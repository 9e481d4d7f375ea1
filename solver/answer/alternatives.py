"""Alternatives to the plan that came next in a search, how they differ, and whether predictions can tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from cluster_models.remarks import Remark, remark
from cluster_models.training.plan import Alternative, BusiestStage
from cluster_models.training.rank_costs import TimeBreakdown, parts_shown
from cluster_models.training.selection import CloseCall, Trial
from solver.answer.assemble import configuration_of
from solver.answer.time_account import micro_batch_s, time_breakdown
from solver.candidates import CandidateBatch
from solver.costs.differences import HALF_WIDTH, NORMAL, difference_error, doublings
from solver.placement.geometry import cell_base
from solver.placement.problem import PlacedTimes, placed_times
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import Candidate, place
from solver.search_state import SearchState

NOTICEABLE: Final = 5e-5
"""Differences below this share of the step are not worth a word."""
RUNNER_UP_ROUNDS: Final = 2
CLOSE: Final = 0.2
"""Probability of being the better one in truth with which an alternative is called a close one."""
MOST_CLOSE: Final = 3
WARM_UP_STEPS: Final = 3
"""Steps of a trial before any counts: compilation, allocation, clocks."""
FEWEST_STEPS, MOST_STEPS = 3, 50
STEP_NOISE: Final = 0.02
"""Spread of a step's time from one to the next in a run; runs of one configuration differ by less."""
FINE: Final = 0.25
"""Share of the half width of a difference that the noise of a trial may have."""


def place_runners_up(
    problem: PlanningProblem,
    options: SearchOptions,
    state: SearchState,
    remaining_s: Callable[[], float],
) -> None:
    """Place the next-best shapes that pruning left unplaced, while time remains; one may turn out best."""
    for _ in range(RUNNER_UP_ROUNDS):
        assert state.best is not None
        for index in next_best(state, state.best, options.alternatives):
            if not is_placed(state, index) and remaining_s() > 0:
                candidate = state.prepared(problem, index)
                state.placed(index, place(candidate, options, remaining_s=remaining_s))


def is_placed(state: SearchState, index: int) -> bool:
    """Whether a placement of the candidate is known."""
    return index in state.known and state.known[index].assignment is not None


def next_best(state: SearchState, plan: int, count: int, *, placed_only: bool = False) -> list[int]:
    """Candidates of other shapes than ``plan`` and each other, by the objective placed or else by their bound.

    Where the plan is not the best found, that comes first, whatever its shape.
    """
    candidates = state.candidates
    value = candidates.bound_s * candidates.weight
    if placed_only:
        value[:] = np.inf
    for index in state.known:
        if is_placed(state, index):
            value[index] = state.objective(index)
    value[candidates.excess_bytes > 0] = np.inf
    assert state.best is not None
    chosen = [] if state.best == plan else [state.best]
    seen = {_shape(candidates.batch, index) for index in (plan, *chosen)}
    for index in np.argsort(value, kind="stable").tolist():
        if len(chosen) >= count or not np.isfinite(value[index]):
            break
        shape = _shape(candidates.batch, index)
        if shape not in seen:
            seen.add(shape)
            chosen.append(index)
    return chosen


def _shape(batch: CandidateBatch, index: int) -> tuple[int, ...]:
    """The sizes that say what lies where; virtual stages, micro-batches and the like are settings."""
    names = ("tensor", "pipeline", "data", "context", "expert", "expert_tensor")
    return tuple(int(getattr(batch, name)[index]) for name in names)


def placed_alternative(
    state: SearchState, index: int, candidate: Candidate, plan: int, best: TimeBreakdown
) -> Alternative:
    """The best placement known of ``candidate``, number ``index``, beside the plan, number ``plan``."""
    assignment = state.known[index].assignment
    assert assignment is not None
    times = placed_times(candidate.placement, assignment)
    time = time_breakdown(candidate, times)
    slower = time.step_s / best.step_s - 1
    return Alternative(
        configuration=configuration_of(candidate),
        step_s=time.step_s,
        slower_by=slower,
        peak_memory_bytes=float(candidate.memory.total_bytes[0].max()),
        reason=_reason(time, best, is_better=state.objective(index) < state.objective(plan)),
        time=time,
        busiest=_busiest(candidate, times, candidate.fabric.hosts(assignment)),
    )


def _busiest(candidate: Candidate, times: PlacedTimes, hosts: Sequence[str]) -> BusiestStage:
    """The stage whose parts ``time_breakdown`` tells, on ``hosts`` in rank order."""
    replica, work_s = micro_batch_s(candidate, times)
    stage, configuration = int(work_s.argmax()), configuration_of(candidate)
    degrees = configuration.degrees
    first = cell_base(degrees, configuration.rank_order, replica, stage)
    on_node = min(candidate.fabric.gpus_per_node, degrees.gpus)
    ranks = range(first, first + degrees.tensor * degrees.context)
    nodes = tuple(dict.fromkeys(hosts[rank // on_node] for rank in ranks))
    return BusiestStage(stage, nodes, float(work_s[stage]), float(np.median(work_s)))


def close_calls(state: SearchState, plan: int, rivals: Sequence[int]) -> tuple[CloseCall, ...]:
    """The alternatives ``rivals`` that may well be better than the plan in truth, likeliest first."""
    batch = state.candidates.batch.take(np.array([plan, *rivals]))
    error, apart = difference_error(), doublings(batch, 0)[1:]
    found = []
    for number, index in enumerate(rivals):
        ratio = state.objective(index) / state.objective(plan)
        low, high = error.ratio_interval(ratio, float(apart[number]))
        chance = error.chance_faster(math.log(ratio), float(apart[number]))
        if chance >= CLOSE:
            found.append(CloseCall(number, low, high, chance))
    return tuple(sorted(found, key=lambda call: -call.chance_better)[:MOST_CLOSE])


def cheapest_trial(
    calls: Sequence[CloseCall], plan: tuple[float, int], others: Sequence[Alternative]
) -> Trial | None:
    """The trial with the most to gain for its GPU time; ``plan``: seconds of a step of the plan, and its GPUs."""
    trials = [_trial(call, plan, others[call.alternative]) for call in calls]
    return max(trials, key=lambda trial: trial.gain / trial.gpu_minutes, default=None)


def _trial(call: CloseCall, plan: tuple[float, int], other: Alternative) -> Trial:
    half_width = math.log(call.ratio_high / call.ratio_low) / 2
    steps = math.ceil(2 * (STEP_NOISE / (FINE * half_width)) ** 2)
    steps = min(max(steps, FEWEST_STEPS), MOST_STEPS)
    spread = half_width / HALF_WIDTH
    behind = math.log(call.ratio_high * call.ratio_low) / 2 / spread
    gain = spread * (NORMAL.pdf(behind) - behind * NORMAL.cdf(-behind))
    gpu_seconds = plan[0] * plan[1] + other.step_s * other.configuration.degrees.gpus
    return Trial(call.alternative, steps, WARM_UP_STEPS, (WARM_UP_STEPS + steps) * gpu_seconds / 60, gain)


def _reason(time: TimeBreakdown, best: TimeBreakdown, *, is_better: bool) -> Remark:
    """How much slower it is, and what it gains and loses by, in seconds of each part of the step."""
    more = time.step_s - best.step_s
    share = abs(more) / best.step_s
    if share < NOTICEABLE:
        return remark("as_fast")
    shown = parts_shown(time, best)
    parts = tuple(getattr(time, part) - getattr(best, part) for part in shown)
    return remark(
        "slower" if more > 0 else "faster" if is_better else "faster_but_worse",
        share=share,
        more_s=more,
        parts=shown,
        parts_more_s=parts,
    )


def misfits(problem: PlanningProblem, state: SearchState, best: TimeBreakdown) -> Iterator[Alternative]:
    """The nearest faster miss of the memory limit, if there is one."""
    misfit = _nearest_misfit(state, best.step_s)
    if misfit is not None:
        yield _too_large(state.prepared(problem, misfit), float(state.candidates.bound_s[misfit]), best.step_s)


def _nearest_misfit(state: SearchState, step_s: float) -> int | None:
    """Candidate that misses its memory by least, among those that could be faster."""
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
        reason=remark(
            "does_not_fit",
            stage=stage,
            needs_bytes=float(total[stage]),
            limit_bytes=float(limit[stage]),
            bound_s=bound_s,
        ),
    )
