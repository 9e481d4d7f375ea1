"""Enumeration equals brute force, whatever it leaves out as symmetric or too slow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.placement_grid import Training, grid_problem
from solver.compiled import step_seconds, violations
from solver.placement.exhaustive import Enumeration, interchangeable_nodes, rotation_slots
from solver.placement.problem import PlacementProblem
from tests.solver.test_placement import SHAPES, all_steps, placement


def enumerated(asked: PlacementProblem) -> Enumeration:
    """Everything seen, with nothing known before."""
    enumeration = Enumeration(asked, np.arange(asked.slots), np.inf)
    while not enumeration.complete:
        enumeration.advance()
    return enumeration


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_finds_the_optimum_of_every_kind_of_candidate(shape: str, seed: int) -> None:
    """On crossing traffic, shared nodes, experts, interleaving: the step is brute force's."""
    asked = placement(shape, seed)
    found = enumerated(asked)
    assert found.step_s == pytest.approx(min(all_steps(asked).values()), rel=1e-12)
    assert step_seconds(found.assignment, asked.arrays)[0] == pytest.approx(found.step_s, rel=1e-12)


@st.composite
def grids(draw: st.DrawFn) -> PlacementProblem:
    """Grids of up to six nodes, spare ones included, on links of few speeds, so that nodes are alike."""
    dp, pp = draw(st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (3, 1), (4, 1), (2, 3), (3, 2), (5, 1)]))
    nodes = draw(st.integers(dp * pp, 6))
    rates = draw(st.lists(st.sampled_from([1e9, 2e9, 5e9]), min_size=nodes**2, max_size=nodes**2))
    links = np.array(rates).reshape(nodes, nodes)
    if draw(st.booleans()):
        leaf = np.array(draw(st.lists(st.integers(0, 1), min_size=nodes, max_size=nodes)))
        links = np.where(leaf[:, None] == leaf[None, :], 5e9, 2e9)
    training = Training(dp, pp, 0.1, 0.2, draw(st.sampled_from([0.0, 2e8, 1e9])), 1e9, draw(st.integers(1, 6)))
    return grid_problem(links, training)


@given(grids())
@settings(max_examples=30)
def test_it_finds_the_optimum_where_nodes_are_alike(asked: PlacementProblem) -> None:
    """Leaving out interchangeable nodes and rotated replicas loses nothing."""
    assert enumerated(asked).step_s == pytest.approx(min(all_steps(asked).values()), rel=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_it_keeps_to_the_rules(seed: int) -> None:
    """Ineligible nodes, places apart and quotas: the best of the assignments that break none."""
    random = np.random.default_rng(seed)
    asked = grid_problem(random.uniform(1e9, 5e9, (6, 6)), Training(2, 2, 0.1, 0.2, 5e8, 1e9, 4))
    eligible = random.random((4, 6)) < 0.8
    rules = asked.arrays.rules._replace(
        eligible=eligible,
        group_slots=np.array([[0, 2], [1, 3]]),
        fewest_places=np.array([2, 1]),
        most_places=np.array([2, 1]),
        places=np.array([[0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1]]),
        quota_of=np.array([[0, 0, 0, 1, 1, 1]]),
        fewest_used=np.array([1, 1]),
        most_used=np.array([2, 3]),
    )
    asked = replace(asked, arrays=asked.arrays._replace(rules=rules))
    allowed = [
        step
        for order, step in all_steps(asked).items()
        if violations(np.array(order), rules) == 0 and all(eligible[k, n] for k, n in enumerate(order))
    ]
    found = enumerated(asked)
    assert found.step_s == (pytest.approx(min(allowed), rel=1e-12) if allowed else np.inf)


def test_nodes_of_one_leaf_are_interchangeable() -> None:
    """Equal rows of the matrix make a class; one different link takes its two nodes out."""
    leaf = np.array([0, 0, 0, 1, 1, 1])
    links = np.where(leaf[:, None] == leaf[None, :], 5e9, 2e9)
    training = Training(3, 2, 0.1, 0.2, 5e8, 1e9, 4)
    assert interchangeable_nodes(grid_problem(links, training).arrays).tolist() == [0, 0, 0, 3, 3, 3]
    links[1, 4] = 1e9
    assert interchangeable_nodes(grid_problem(links, training).arrays).tolist() == [0, 1, 0, 3, 4, 3]


def test_replicas_that_share_nodes_cannot_be_rotated() -> None:
    """Where each has slots of its own they can: one slot of each is told apart."""
    assert len(rotation_slots(placement("cells share nodes", 0))) == 0
    assert rotation_slots(placement("pipeline and data", 0)).tolist() == [0, 1]
