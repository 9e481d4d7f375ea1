"""The placement program equals brute force with both back ends, and its relaxation never exceeds it."""

from __future__ import annotations

from itertools import permutations
from random import Random

import numpy as np
import pytest

from cluster_models.cluster.measurements import Direction
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Degrees, RankOrder
from cluster_models.training.workload import Sharding
from solver.candidates import SHARDING_CODES
from solver.compiled import step_seconds
from solver.ilp import IlpStatus, solve_integer, solve_relaxation
from solver.placement.bounds import placement_bound_s
from solver.placement.geometry import geometry
from solver.placement.least_inputs import least_inputs
from solver.placement.local_search import search_placement
from solver.placement.model import PlacementModel, build_model
from solver.placement.problem import PlacementProblem, placed_times
from solver.problem import Backend, SearchOptions
from solver.refine import Refined, place, refine
from tests.solver.problems import DENSE, SPARSE, candidate, names, nodes, pair_samples, problem, rates_of

RATES = (3.0, 8.0, 20.0, 40.0)
SHAPES = {
    "pipeline": (5, 1, {"pipeline": 4}),
    "pipeline and data": (4, 1, {"pipeline": 2, "data": 2}),
    "interleaved": (4, 1, {"pipeline": 4, "virtual_pipeline": 2}),
    "waiting for sends": (4, 1, {"pipeline": 4}),
    "interleaved, waiting": (4, 1, {"pipeline": 4, "virtual_pipeline": 2}),
    "cells share nodes": (4, 2, {"tensor": 1, "pipeline": 4, "data": 2}),
    "pipeline inside nodes": (4, 2, {"pipeline": 4, "data": 2, "rank_order": 1}),
    "straddling stages": (3, 4, {"pipeline": 4, "data": 3}),
    "context over nodes": (4, 1, {"context": 2, "data": 2}),
    "parameters sharded": (4, 1, {"data": 4, "sharding": SHARDING_CODES.index(Sharding.PARAMETERS)}),
    "experts over nodes": (4, 1, {"data": 4, "expert": 4}),
    "experts and pipeline": (5, 1, {"pipeline": 2, "data": 2, "expert": 2}),
}
BOTH = pytest.mark.parametrize("backend", Backend)


def placement(shape: str, seed: int) -> PlacementProblem:
    """A placement problem of the shape on random links, each way on its own, one node slow on odd seeds."""
    count, gpus, degrees = SHAPES[shape]
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    rates = {pair: random.choice(RATES) for pair in permutations(names(count), 2)}
    slow = {"n1": 1.3} if seed % 2 else {}
    model = SPARSE if "expert" in degrees else DENSE
    samples = pair_samples(rates, flows=gpus, direction=Direction.FORWARD)
    generation = framework("megatron-lm-3" if "waiting" in shape else "megatron-core-0.12")
    asked = problem(
        nodes(count, gpus=gpus, slowdown=slow), samples, model=model, global_batch=12, framework=generation
    )
    return candidate(asked, **degrees).placement


def all_steps(asked: PlacementProblem) -> dict[tuple[int, ...], float]:
    """Step seconds of every assignment."""
    orders = permutations(range(asked.nodes), asked.slots)
    return {order: step_seconds(np.array(order), asked.arrays)[0] for order in orders}


def seeded(asked: PlacementProblem) -> PlacementModel:
    """The program with its first paths."""
    model = build_model(asked)
    for duration_s, delay_s in zip(*least_inputs(asked), strict=True):
        model.add_paths(duration_s, delay_s)
    return model


@BOTH
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_program_finds_the_best_placement(shape: str, seed: int, backend: Backend) -> None:
    """Solved again with every path it overlooked, its optimum is brute force's, and so is its bound."""
    asked = placement(shape, seed)
    best = min(all_steps(asked).values())
    model, found = seeded(asked), np.inf
    for _ in range(20):
        outcome = solve_integer(
            model.program(), backend=backend, time_limit_s=20, node_limit=100_000, expected=best
        )
        assert outcome.status is IlpStatus.OPTIMAL
        assert outcome.bound <= best * (1 + 1e-6)
        assert outcome.values is not None
        assignment = model.assignment(outcome.values)
        assert len(set(assignment.tolist())) == asked.slots
        found = min(found, step_seconds(assignment, asked.arrays)[0])
        if not model.add_paths_at(outcome.values):
            break
    assert outcome.objective == pytest.approx(best, rel=1e-6)
    assert found == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_lie_below_the_best_placement(shape: str, seed: int) -> None:
    """Relaxation with cuts and the simulated bound; local search finds no less than the best, here the best."""
    asked = placement(shape, seed)
    best = min(all_steps(asked).values())
    model = seeded(asked)
    for _ in range(5):
        relaxed = solve_relaxation(model.program())
        assert relaxed.bound <= best * (1 + 1e-7)
        assert relaxed.values is not None
        if not model.add_paths_at(relaxed.values):
            break
    assert placement_bound_s(asked) <= best * (1 + 1e-9)
    assignment, step_s, _ = search_placement(asked, moves=3000, seed=seed)
    assert step_s == step_seconds(assignment, asked.arrays)[0]
    assert step_s == pytest.approx(best, rel=1e-12)


@BOTH
@pytest.mark.parametrize("shape", ["pipeline and data", "cells share nodes", "experts over nodes"])
def test_a_cutoff_below_the_best_is_proved_empty(shape: str, backend: Backend) -> None:
    """Asked for 0.1 % better than the best there is, the program is infeasible; asked for the best it is not."""
    asked = placement(shape, 1)
    best = min(all_steps(asked).values())
    for share, status in ((0.999, IlpStatus.INFEASIBLE), (1.0 + 1e-6, IlpStatus.OPTIMAL)):
        model = seeded(asked)
        for duration_s, delay_s in zip(
            *(getattr(placed_times(asked, _argmin(asked)), name) for name in ("duration_s", "delay_s")), strict=True
        ):
            model.add_paths(duration_s, delay_s)
        model.add_cutoff(best * share)
        for _ in range(20):
            outcome = solve_integer(
                model.program(), backend=backend, time_limit_s=20, node_limit=100_000, expected=best
            )
            if outcome.values is None or not model.add_paths_at(outcome.values):
                break
        assert outcome.status is status


def _argmin(asked: PlacementProblem) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    steps = all_steps(asked)
    return np.array(min(steps, key=steps.__getitem__))


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("shape", ["pipeline", "pipeline and data", "straddling stages", "experts over nodes"])
def test_three_levels_of_refinement_close_the_gap(shape: str, backend: Backend) -> None:
    """Place, relax, branch: bounds only rise, steps only fall, and they meet at brute force's optimum."""
    count, gpus, degrees = SHAPES[shape]
    random = Random(7)  # noqa: S311 - reproducible, not secret
    rates = rates_of(count, [random.choice(RATES) for _ in range(count * (count - 1) // 2)])
    model = SPARSE if "expert" in degrees else DENSE
    asked = problem(nodes(count, gpus=gpus), pair_samples(rates, flows=gpus), model=model, global_batch=12)
    chosen = candidate(asked, **degrees)
    options = SearchOptions(backend=backend)
    best = min(all_steps(chosen.placement).values())
    known: Refined = place(chosen, options)
    for level in (1, 2, 3):
        target = known.step_s
        refined = refine(chosen, known, level=level, target_s=target, options=options, remaining_s=lambda: 60.0)
        if refined.assignment is None:
            continue
        assert refined.step_s <= known.step_s
        assert refined.bound_s <= best * (1 + 1e-9)
        known = refined
    assert known.step_s == pytest.approx(best, rel=1e-9)
    assert known.bound_s == pytest.approx(best, rel=1e-6)


def test_slots_of_a_hand_made_case() -> None:
    """tp2 pp2 dp2 on nodes of four: one stage a node, whose replicas share it."""
    shape = geometry(Degrees(tensor=2, pipeline=2, data=2), RankOrder.DATA_BEFORE_PIPELINE, 4)
    assert shape.slots == 2
    assert shape.cell_slots.tolist() == [[[0], [1]], [[0], [1]]]
    assert shape.hop_pairs[0, 0].tolist() == [[[0, 1]], [[-1, -1]]]
    assert shape.hop_pairs[0, 1].tolist() == [[[-1, -1]], [[1, 0]]]
    assert (shape.ring_pairs == -1).all()
    assert shape.ring_members.tolist() == [2, 2]


def test_pipeline_first_keeps_a_replica_together() -> None:
    """The other rank order puts a whole pipeline on each node and the rings between nodes."""
    shape = geometry(Degrees(tensor=2, pipeline=2, data=2), RankOrder.PIPELINE_BEFORE_DATA, 4)
    assert shape.cell_slots.tolist() == [[[0], [0]], [[1], [1]]]
    assert shape.ring_pairs[0].tolist() == [[[0, 1], [1, 0]], [[0, 1], [1, 0]]]
    assert shape.ring_members.tolist() == [1, 1]
    assert shape.ring_nodes.tolist() == [2, 2]


def test_interleaving_closes_the_pipeline_to_a_ring() -> None:
    """The last rank sends to the first, which a plain pipeline never does."""
    plain = geometry(Degrees(pipeline=3), RankOrder.DATA_BEFORE_PIPELINE, 1)
    closed = geometry(Degrees(pipeline=3, virtual_pipeline=2), RankOrder.DATA_BEFORE_PIPELINE, 1)
    assert plain.hop_pairs[0, 0, 2].tolist() == [[-1, -1]]
    assert closed.hop_pairs[0, 0, 2].tolist() == [[2, 0]]
    assert closed.hop_pairs[0, 1, 0].tolist() == [[0, 2]]
