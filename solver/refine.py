"""One candidate at a time: place it ever more carefully, and bound what placing it can reach.

Levels: 1 a short local search and the simulated bound; 2 a long local search and the linear relaxation with the
paths it makes critical; 3 the integer program, asked only for something better than the best plan known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.gpus import GpuKind
from solver.candidates import CandidateBatch, IntArray
from solver.compiled import step_seconds
from solver.costs.memory import StageMemoryParts
from solver.costs.step_costs import StepCosts
from solver.degrees.layout import Layout, chunk_layers
from solver.degrees.staging import StageKinds, costs_of, kind_rows, layout_of, memory_of, micro_batches_of
from solver.ilp import IlpStatus, solve_integer, solve_relaxation
from solver.placement.bounds import least_inputs, placement_bound_s
from solver.placement.build import build_placement
from solver.placement.fabric import Fabric
from solver.placement.local_search import Found, search_placement
from solver.placement.model import PlacementModel, build_model
from solver.placement.problem import PlacementProblem
from solver.placement.rule_rows import first_assignment
from solver.placement.site import on_site
from solver.problem import PlanningProblem, SearchOptions

LEVELS: Final = 3
EVENTS: Final = (1e7, 2e8)
"""Simulated events of one short and one long local search (about 3 ns each); effort repeats the long one."""
FLOW_COLUMNS_PER_EFFORT: Final = 60_000
"""Programs with more flow columns than this are not solved: their relaxation alone takes minutes."""
SIMPLEX_ITERATIONS_PER_EFFORT: Final = 60_000
BRANCH_NODES_PER_EFFORT: Final = 2_000
CUT_ROUNDS: Final = 8
PROGRAM_TIME_S: Final = 6.0
"""Longest single solve of a program, so that progress and cancellation are seen."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One candidate ready to be placed; ``stage_kinds`` is empty where the fabric has GPUs of one kind."""

    fabric: Fabric
    batch: CandidateBatch
    layout: Layout
    stage_kinds: StageKinds
    costs: StepCosts
    memory: StageMemoryParts
    placement: PlacementProblem

    @property
    def stage_gpus(self) -> tuple[GpuKind, ...]:
        """The GPU kind of each pipeline rank."""
        kinds = self.stage_kinds or (0,) * int(self.batch.pipeline[0])
        return tuple(self.fabric.kinds[kind] for kind in kinds)

    @property
    def gpu_kinds(self) -> tuple[GpuKind, ...]:
        """The GPU kinds that the candidate uses, each once, in the order of the pipeline."""
        return tuple({gpu.name: gpu for gpu in self.stage_gpus}.values())


@dataclass(frozen=True, slots=True, eq=False)
class Refined:
    """Result of one refinement: the best assignment (K,) known with its step time, and the bound.

    A candidate whose bound alone ruled it out has no assignment and an infinite step time, and so has one for which
    no assignment that keeps all rules is known.
    """

    assignment: IntArray | None
    step_s: float
    bound_s: float


def prepare(
    problem: PlanningProblem,
    fabric: Fabric,
    batch: CandidateBatch,
    layout: Layout | None = None,
    stage_kinds: StageKinds = (),
) -> Candidate:
    """Costs, memory and placement problem of a batch with one row.

    ``layout`` and ``stage_kinds`` are needed where ``fabric`` has GPUs of several kinds.
    """
    assert bool(stage_kinds) == fabric.is_mixed
    layout = layout_of(problem, batch) if layout is None else layout
    layers = chunk_layers(problem.architecture, layout)
    kinds = kind_rows(batch, stage_kinds)
    costs = costs_of(problem, fabric, batch, layers, kinds)
    memory = memory_of(problem, fabric.kinds, batch, layers, kinds)
    micro_batches = int(micro_batches_of(batch, problem.workload)[0])
    blocking = problem.workload.framework.blocking_transfers
    placement = build_placement(batch, costs, micro_batches, fabric, blocking=blocking, stage_kinds=stage_kinds)
    placement = on_site(placement, problem, fabric, batch, costs)
    return Candidate(fabric, batch, layout, stage_kinds, costs, memory, placement)


def place(candidate: Candidate, options: SearchOptions, bound_s: float = 0.0) -> Refined:
    """The candidate placed by a short local search.

    Where that breaks a rule it starts again from an assignment that keeps them all.  Without one the candidate has
    no placement, and where it is proven that there is none, an infinite bound.
    """
    placement = candidate.placement
    found = _search(placement, None, EVENTS[0], options.seed)
    if found.violations:
        first = first_assignment(placement.arrays.rules)
        if first.assignment is None:
            return Refined(None, np.inf, np.inf if first.impossible else bound_s)
        found = _search(placement, first.assignment, EVENTS[0], options.seed)
    return Refined(found.assignment, found.step_s, min(bound_s, found.step_s))


def refine(
    candidate: Candidate,
    known: Refined | None,
    *,
    level: int,
    target_s: float,
    options: SearchOptions,
    remaining_s: Callable[[], float],
) -> Refined:
    """The candidate at ``level``, starting from what is ``known`` of it.

    ``target_s`` is the step time below which the candidate would matter; the integer program looks no further.
    """
    placement = candidate.placement
    if known is None or known.assignment is None:
        bound_s = placement_bound_s(placement)
        if bound_s >= target_s:
            return Refined(None, np.inf, bound_s)
        return place(candidate, options, bound_s)
    if level == 2:
        best = known
        for round_ in range(options.effort):
            found = _search(placement, best.assignment, EVENTS[1], options.seed + round_)
            if found.step_s < best.step_s:
                best = Refined(found.assignment, found.step_s, known.bound_s)
            if remaining_s() <= 0:
                break
        return _relaxed(placement, best, target_s, options, remaining_s)
    return _integer(placement, known, target_s, options, remaining_s)


def _search(placement: PlacementProblem, start: IntArray | None, events: float, seed: int) -> Found:
    size = len(placement.schedule.rank) * placement.replicas
    moves = int(np.clip(events / size, 100, 100 * placement.nodes**2))
    return search_placement(placement, moves=moves, seed=seed, start=start)


def _solvable(placement: PlacementProblem, options: SearchOptions) -> bool:
    """Whether the program is small enough to be worth solving."""
    arrays = placement.arrays
    pairs = np.concatenate([p.reshape(-1, 2) for p in (arrays.hop_pairs, arrays.cross_pairs, arrays.ring_pairs)])
    crossing = np.sort(pairs[(pairs[:, 0] >= 0) & (pairs[:, 0] != pairs[:, 1])], axis=1)
    columns = len(np.unique(crossing, axis=0)) * placement.nodes * (placement.nodes - 1)
    return columns <= FLOW_COLUMNS_PER_EFFORT * options.effort


def _seeded_model(placement: PlacementProblem) -> PlacementModel:
    """The program with the paths that are critical when everything is at its best."""
    model = build_model(placement)
    for duration_s, delay_s in zip(*least_inputs(placement), strict=True):
        model.add_paths(duration_s, delay_s)
    return model


def _relaxed(
    placement: PlacementProblem,
    best: Refined,
    target_s: float,
    options: SearchOptions,
    remaining_s: Callable[[], float],
) -> Refined:
    """``best`` with the bound of the relaxation, paths added until none is violated or the bound suffices."""
    if best.bound_s >= target_s or not _solvable(placement, options):
        return best
    model = _seeded_model(placement)
    bound_s = best.bound_s
    for _ in range(CUT_ROUNDS):
        relaxed = solve_relaxation(
            model.program(),
            time_limit_s=min(PROGRAM_TIME_S, remaining_s()),
            iteration_limit=SIMPLEX_ITERATIONS_PER_EFFORT * options.effort,
        )
        bound_s = max(bound_s, relaxed.bound)
        if relaxed.values is None or bound_s >= target_s or not model.add_paths_at(relaxed.values):
            break
    return Refined(best.assignment, best.step_s, min(bound_s, best.step_s))


def _integer(
    placement: PlacementProblem,
    best: Refined,
    target_s: float,
    options: SearchOptions,
    remaining_s: Callable[[], float],
) -> Refined:
    """``best`` improved, or its bound raised to ``target_s``, by the integer program.

    Every solution is simulated; where the program thought it faster than it is, the critical path is added and
    the program solved again.
    """
    if not _solvable(placement, options):
        return best
    model = _seeded_model(placement)
    model.add_cutoff(min(target_s, best.step_s))
    assignment, step_s, bound_s = best.assignment, best.step_s, best.bound_s
    for _ in range(CUT_ROUNDS):
        outcome = solve_integer(
            model.program(),
            backend=options.backend,
            time_limit_s=min(PROGRAM_TIME_S, remaining_s()),
            node_limit=BRANCH_NODES_PER_EFFORT * options.effort,
            expected=step_s,
        )
        if outcome.status is IlpStatus.INFEASIBLE:
            bound_s = max(bound_s, min(target_s, step_s))
            break
        bound_s = max(bound_s, min(outcome.bound, target_s, step_s))
        if outcome.values is None:
            break
        found = model.assignment(outcome.values)
        found_s = step_seconds(found, placement.arrays)[0]
        if found_s < step_s:
            assignment, step_s = found, float(found_s)
        violated = model.add_paths_at(outcome.values)
        if outcome.status is not IlpStatus.OPTIMAL or not violated or remaining_s() <= 0:
            break
    return Refined(assignment, step_s, min(bound_s, step_s))
