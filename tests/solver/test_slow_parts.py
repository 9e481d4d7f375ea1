"""Slow nodes are found from the steps of runs that used them, and none is named where none is slow."""

from __future__ import annotations

import math

import numpy as np
import pytest

from solver.fitting.slow_parts import Observation, slow_parts

NODES = 16


def _runs(
    seed: int, *, slow: dict[int, float], since: int = 0, runs: int = 60, nodes: int = 4, noise: float = 0.02
) -> list[Observation]:
    """Runs on random nodes, each as slow as its slowest node; nodes are ``slow`` from run ``since`` on."""
    random = np.random.default_rng(seed)
    found = []
    for number in range(runs):
        used = random.choice(NODES, nodes, replace=False).tolist()
        pace = max((slow.get(node, 1.0) if number >= since else 1.0) for node in used)
        excess = 0.1 + math.log(pace) + noise * float(random.standard_normal())
        found.append(Observation(excess, "all", frozenset(f"n{node}" for node in used)))
    return found


@pytest.mark.parametrize("since", [0, 25])
def test_the_slow_node_is_named_with_its_slowdown(since: int) -> None:
    """Whether it always was slow or became so; a cost model that is off for all runs alike does not matter."""
    for seed in range(20):
        found = slow_parts(_runs(seed, slow={3: 1.3}, since=since, runs=90))
        assert [each.parts for each in found] == [("n3",)]
        assert found[0].slowdown == pytest.approx(1.3, rel=0.08)


def test_two_slow_nodes_are_both_named() -> None:
    """Each explains the runs that the other had no part in."""
    for seed in range(10):
        found = slow_parts(_runs(seed, slow={3: 1.3, 8: 1.15}, runs=90))
        assert {each.parts for each in found} == {("n3",), ("n8",)}


def test_no_node_is_named_where_none_is_slow() -> None:
    """Noise alone names a node in fewer than one of twenty fleets."""
    named = [bool(slow_parts(_runs(seed, slow={}, noise=0.05))) for seed in range(200)]
    assert sum(named) <= 10


def test_slowness_that_nodes_do_not_explain_is_blamed_on_none() -> None:
    """A tenth of the runs is slow whatever they ran on."""
    random = np.random.default_rng(1)
    named = 0
    for seed in range(100):
        runs = [
            Observation(each.excess + (0.3 if random.random() < 0.1 else 0.0), each.group, each.parts)
            for each in _runs(seed, slow={})
        ]
        named += bool(slow_parts(runs))
    assert named <= 5


def test_a_node_that_is_well_again_is_not_named() -> None:
    """Its newest run was as fast as usual."""
    runs = _runs(2, slow={3: 1.3})
    assert slow_parts(runs)
    mended = [*runs, Observation(0.1, "all", frozenset({"n3", "n4", "n5", "n6"}))]
    assert all("n3" not in each.parts for each in slow_parts(mended))


def test_nodes_that_always_run_together_are_named_together() -> None:
    """Nobody can tell which of them it is."""
    together = [
        Observation(each.excess, each.group, each.parts | {"n3", "twin"} if "n3" in each.parts else each.parts)
        for each in _runs(3, slow={3: 1.3})
    ]
    assert [each.parts for each in slow_parts(together)] == [("n3", "twin")]


def test_few_runs_name_nothing() -> None:
    """Nobody knows the usual speed of three runs."""
    assert slow_parts(_runs(0, slow={3: 2.0}, runs=3)) == ()
