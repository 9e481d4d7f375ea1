"""Every shape of replicas and stages on up to eight nodes: the best of all orders, and a bound that meets it."""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Direction
from cluster_models.training.plan import StopReason
from solver.check import check_plan
from solver.compiled import step_seconds
from solver.placement.solve import PlacementOutcome, SolveOptions, solve_placement
from solver.problem import PlanningProblem
from tests.solver.every_order import every_order, every_step_s
from tests.solver.grid_cases import FEATURES, MOST_NODES, SHAPES, Case, grid_of, random_case
from tests.solver.naive import legal_degrees
from tests.solver.problems import EXACT, candidate, names, nodes, pair_samples, planned, problem

SPARED = [(shape, nodes) for shape in SHAPES for nodes in range(shape[0] * shape[1], MOST_NODES + 1)]


def solved(case: Case, seed: int = 0) -> PlacementOutcome:
    """The planner's answer to a case, with no limit of time."""
    return solve_placement(case.problem, remaining_s=lambda: 600.0, options=SolveOptions(seed=seed, rounds=14))


def check(case: Case) -> None:
    """The answer is the best of all orders that keep the rules, and the bound meets it."""
    found, best = solved(case), case.best_s
    if not np.isfinite(best):
        assert found.violations > 0
        return
    assert found.violations == 0
    assert found.step_s == pytest.approx(best, rel=1e-9)
    assert found.bound_s == pytest.approx(best, rel=1e-9)


@given(st.sampled_from(SHAPES), st.sets(st.sampled_from(FEATURES)), st.integers(0, 2**32 - 1))
@settings(max_examples=15)
def test_a_step_is_the_same_told_twice(shape: tuple[int, int], features: set[str], seed: int) -> None:
    """The planner's kernel and the plain statement agree on orders taken at random."""
    case = random_case(shape, shape[0] * shape[1], features - {"rules"}, seed)
    steps, orders = every_step_s(case.grid), every_order(case.grid.nodes, case.grid.slots)
    for index in np.random.default_rng(seed).integers(0, len(orders), 3):
        assert step_seconds(orders[index], case.problem.arrays)[0] == pytest.approx(steps[index], rel=1e-12)


@pytest.mark.parametrize(("shape", "count"), SPARED)
def test_every_shape_is_solved(shape: tuple[int, int], count: int) -> None:
    """All shapes with all numbers of spare nodes, each on links of its own and with some of the features."""
    seed = SPARED.index((shape, count))
    features = [name for bit, name in enumerate(FEATURES[:-2]) if seed >> bit & 1]
    check(random_case(shape, count, features, seed))


@given(st.sampled_from(SPARED), st.sets(st.sampled_from(FEATURES)), st.integers(0, 2**32 - 1))
@settings(max_examples=25)
def test_every_mix_of_features_is_solved(
    spared: tuple[tuple[int, int], int], features: set[str], seed: int
) -> None:
    """Shapes, spare nodes and features in any combination, rules and shared switches among them."""
    check(random_case(*spared, features, seed))


def asked_for(count: int, seed: int, **changes: Any) -> PlanningProblem:
    """Nodes of one GPU on links of their own each way, one node slow on odd seeds; a micro-batch is a sequence."""
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    ways = [way for a, b in combinations(names(count), 2) for way in ((a, b), (b, a))]
    rates = {way: random.choice([2.0, 5.0, 10.0, 40.0]) for way in ways}
    return problem(
        nodes(count, gpus=1, slowdown={"n1": 1.2} if seed % 2 else {}),
        pair_samples(rates, flows=1, direction=Direction.FORWARD),
        forbidden={"micro_batch": tuple(range(2, 17))},
        **changes,
    )


def best_of_all(asked: PlanningProblem, count: int) -> float:
    """The best step over all degrees that fit and all orders of the nodes."""
    made = [
        candidate(asked, **degrees)
        for degrees in legal_degrees(asked.architecture, asked.workload, gpus_per_node=1, nodes=count)
    ]
    fitting = [each for each in made if (each.memory.total_bytes <= each.memory.limit_bytes).all()]
    return min(float(every_step_s(grid_of(each)).min()) for each in fitting)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_plan_of_every_shape_is_the_best(shape: tuple[int, int]) -> None:
    """Pinned replicas and stages on eight nodes: the best interleaving on the best nodes, proved."""
    replicas, stages = shape
    asked = asked_for(
        MOST_NODES,
        SHAPES.index(shape),
        global_batch=replicas * stages * 2,
        pinned={"data": replicas, "pipeline": stages, "tensor": 1, "context": 1},
    )
    found = planned(asked, EXACT)
    best = best_of_all(asked, MOST_NODES)
    assert found.time.step_s == pytest.approx(best, rel=1e-9)
    assert found.certificate.stopped_by is StopReason.PROVEN
    assert found.certificate.bound == pytest.approx(best, rel=1e-6)
    assert check_plan(found, asked) == ()


@pytest.mark.parametrize(("count", "global_batch"), [(6, 12), (8, 8)])
def test_the_plan_of_all_shapes_together_is_the_best(count: int, global_batch: int) -> None:
    """Which replicas and stages, interleaved how often, on which nodes: one joint answer."""
    asked = asked_for(count, global_batch, global_batch=global_batch, pinned={"tensor": 1, "context": 1})
    found = planned(asked, EXACT)
    best = best_of_all(asked, count)
    assert found.time.step_s == pytest.approx(best, rel=1e-9)
    assert found.certificate.bound == pytest.approx(best, rel=1e-6)
