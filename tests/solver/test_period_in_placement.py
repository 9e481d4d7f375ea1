"""The period rows inside the placement program: a higher bound at once, and never one above brute force."""

from __future__ import annotations

from itertools import permutations
from random import Random

import numpy as np
import pytest

from cluster_models.cluster.measurements import Direction
from solver.compiled import step_seconds
from solver.ilp import IlpStatus, solve_integer, solve_relaxation
from solver.pipeline import period
from solver.placement import model as model_module
from solver.placement.least_inputs import least_inputs
from solver.placement.model import PlacementModel, build_model
from solver.placement.problem import PlacementProblem
from solver.problem import Backend
from tests.solver.problems import candidate, names, nodes, pair_samples, problem

SHAPES = {
    "interleaved": (4, {"pipeline": 4, "virtual_pipeline": 2}),
    "spare nodes": (5, {"pipeline": 3, "virtual_pipeline": 2}),
    "replicas": (4, {"pipeline": 2, "virtual_pipeline": 4, "data": 2}),
    "1f1b": (5, {"pipeline": 4}),
}


def placement(shape: str, seed: int) -> PlacementProblem:
    """Many micro-batches over links of which some are slow, each way on its own; one node computes slowly."""
    count, degrees = SHAPES[shape]
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    rates = {pair: random.choice((2.0, 3.0, 8.0, 20.0)) for pair in permutations(names(count), 2)}
    asked = problem(
        nodes(count, gpus=1, slowdown={"n1": 1.2}),
        pair_samples(rates, flows=1, direction=Direction.FORWARD),
        global_batch=48,
    )
    return candidate(asked, **degrees).placement


def best_step_s(asked: PlacementProblem) -> float:
    """The best step over all assignments."""
    orders = permutations(range(asked.nodes), asked.slots)
    return min(step_seconds(np.array(order), asked.arrays)[0] for order in orders)


def seeded(asked: PlacementProblem) -> PlacementModel:
    """The program with the paths that are critical when everything is at its best."""
    program = build_model(asked)
    for duration_s, delay_s in zip(*least_inputs(asked), strict=True):
        program.add_paths(duration_s, delay_s)
    return program


@pytest.mark.parametrize("most", [0, 10_000])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
def test_the_period_raises_the_first_relaxation(
    shape: str, seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never lower than by paths alone, never above brute force, whether averaged over slots or not."""
    asked = placement(shape, seed)
    monkeypatch.setattr(period, "MOST_EVENTS_OF_A_PERIOD", most)
    with_period = solve_relaxation(seeded(asked).program()).bound
    monkeypatch.setattr(model_module, "add_period_bound", lambda *_, **__: None)
    by_paths = solve_relaxation(seeded(asked).program()).bound
    assert by_paths <= with_period * (1 + 1e-9)
    assert with_period <= best_step_s(asked) * (1 + 1e-7)


def test_a_ring_of_slow_links_is_seen_before_any_path_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four ranks with two virtual stages on slow links: the first bound comes at least a twentieth nearer."""
    asked = placement("interleaved", 3)
    best = best_step_s(asked)
    with_period = solve_relaxation(seeded(asked).program()).bound
    monkeypatch.setattr(model_module, "add_period_bound", lambda *_, **__: None)
    assert with_period - solve_relaxation(seeded(asked).program()).bound > 0.05 * best


@pytest.mark.parametrize("most", [0, 10_000])
@pytest.mark.parametrize("shape", ["interleaved", "replicas"])
def test_the_program_stays_exact(shape: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the paths it overlooked its optimum is brute force's."""
    monkeypatch.setattr(period, "MOST_EVENTS_OF_A_PERIOD", most)
    asked = placement(shape, 1)
    best, program = best_step_s(asked), seeded(asked)
    for _ in range(20):
        outcome = solve_integer(
            program.program(), backend=Backend.CBC, time_limit_s=20, node_limit=100_000, expected=best
        )
        assert outcome.status is IlpStatus.OPTIMAL
        assert outcome.values is not None
        if not program.add_paths_at(outcome.values):
            break
    assert outcome.objective == pytest.approx(best, rel=1e-6)
