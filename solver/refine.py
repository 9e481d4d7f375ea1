"""One candidate at a time: place it ever more carefully, and bound what placing it can reach.

Levels: 1 a short local search and the simulated bound; 2 rounds of local search and bounds, enumeration where there
are few slots, and the linear relaxation; 3 the integer program, asked only for something better than the best plan
known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from solver.candidates import CandidateBatch, IntArray
from solver.costs.memory import StageMemoryParts
from solver.costs.step_costs import StepCosts
from solver.degrees.layout import Layout, chunk_layers
from solver.degrees.stage_costs import StageKinds, costs_of, kind_rows, layout_of, memory_of, micro_batches_of
from solver.placement.bounds import placement_bound_s
from solver.placement.build import build_placement
from solver.placement.fabric import Fabric
from solver.placement.first_assignment import first_assignment
from solver.placement.local_search import Found, bad_nodes_together, pairs_per_move, search_placement
from solver.placement.problem import PlacementProblem
from solver.placement.program import branch, relax
from solver.placement.site import on_site
from solver.placement.solve import PlacementOutcome, SolveOptions, solve_placement
from solver.problem import PlanningProblem, SearchOptions

LEVELS: Final = 3
EVENTS: Final = 1e7
"""Simulated events of the short local search, about 3 ns each."""
EVENTS_PER_MOVE: Final = 500
"""Cost of a move beside two simulations, in events, where it changes few pairs of nodes."""
ROUNDS: Final = 5
"""Rounds of search and bound of the long one; every doubling of the effort adds one."""


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
    layers = chunk_layers(problem.architecture, layout, batch.runs)
    kinds = kind_rows(batch, stage_kinds)
    costs = costs_of(problem, fabric, batch, layers, kinds)
    memory = memory_of(problem, fabric.kinds, batch, layers, kinds, domain=fabric.gpus_per_unit)
    micro_batches = int(micro_batches_of(batch, problem.workload)[0])
    framework = problem.workload.framework
    placement = build_placement(batch, costs, micro_batches, fabric, framework=framework, stage_kinds=stage_kinds)
    placement = on_site(placement, problem, fabric, batch, costs)
    return Candidate(fabric, batch, layout, stage_kinds, costs, memory, placement)


def place(
    candidate: Candidate,
    options: SearchOptions,
    bound_s: float = 0.0,
    *,
    remaining_s: Callable[[], float] = lambda: np.inf,
) -> Refined:
    """The candidate placed by a short local search.

    Where that breaks a rule it starts again from an assignment that keeps them all, looked for while time remains.
    Without one the candidate has no placement, and where it is proven that there is none, an infinite bound.
    """
    placement = candidate.placement
    found = _search(placement, bad_nodes_together(placement), options.seed, remaining_s)
    if found.violations:
        first = first_assignment(placement.arrays.rules, remaining_s=remaining_s())
        if first.assignment is None:
            return Refined(None, np.inf, np.inf if first.impossible else bound_s)
        found = _search(placement, first.assignment, options.seed, remaining_s)
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
    if known is None:
        bound_s = placement_bound_s(placement)
        if bound_s >= target_s:
            return Refined(None, np.inf, bound_s)
        return place(candidate, options, bound_s, remaining_s=remaining_s)
    if known.assignment is None:
        return known  # the same search would end without a placement once more
    best = PlacementOutcome(known.assignment, known.step_s, known.bound_s)
    if level == 2:
        rounds = ROUNDS + int(np.log2(options.effort))
        best = solve_placement(
            placement,
            remaining_s=remaining_s,
            options=SolveOptions(gap=options.gap, seed=options.seed, rounds=rounds, target_s=target_s),
            known=best,
        )
        if best.bound_s < min(target_s, best.step_s):
            best = relax(placement, best, target_s=target_s, effort=options.effort, remaining_s=remaining_s)
    else:
        best = branch(
            placement,
            best,
            target_s=target_s,
            effort=options.effort,
            backend=options.backend,
            remaining_s=remaining_s,
        )
    return Refined(best.assignment, best.step_s, best.bound_s)


def _search(
    placement: PlacementProblem, start: IntArray | None, seed: int, remaining_s: Callable[[], float]
) -> Found:
    size = 2 * len(placement.schedule.rank) + max(EVENTS_PER_MOVE, pairs_per_move(placement))
    moves = int(np.clip(EVENTS / size, 100, 100 * placement.nodes**2))
    return search_placement(placement, moves=moves, seed=seed, start=start, stopped=lambda: remaining_s() <= 0)
