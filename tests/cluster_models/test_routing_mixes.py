"""Workloads mixed, cut, numbered and compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import Counts, RoutedWorkload
from cluster_models.routing.mixes import agreement, of_model, restricted, weighted


def _workload(name: str, seed: int, layers: tuple[int, ...] = (3, 4, 5), experts: int = 8) -> RoutedWorkload:
    random = np.random.default_rng(seed)

    def table() -> Counts:
        return random.uniform(0, 9, size=(experts, experts))

    return RoutedWorkload(
        name,
        layers,
        random.uniform(1, 1000, size=(len(layers), experts)) * 10.0**seed,
        {index: table() for index in range(len(layers) - 1)},
        {0: table()},
        tokens=5.0,
    )


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_a_mix_weighs_shares_not_counts(one: float, other: float) -> None:
    """However many tokens were counted of each; rows sum to 1."""
    first, second = _workload("a", 0), _workload("b", 5)
    mix = weighted([first, second], [one, other])
    expected = (one * first.shares() + other * second.shares()) / (one + other)
    assert np.allclose(mix.loads, expected)
    assert np.allclose(mix.loads.sum(axis=1), 1)
    moved = (
        first.transitions[1] / first.loads[1].sum() * one + second.transitions[1] / second.loads[1].sum() * other
    )
    assert np.allclose(mix.transitions[1], moved / (one + other))


def test_a_mix_of_one_is_that_one() -> None:
    """A weight of 0 takes a workload out, with tables that only it lacks."""
    first, bare = _workload("a", 0), RoutedWorkload("b", (3, 4, 5), np.ones((3, 8)))
    assert weighted([first, bare], [2, 0]).transitions.keys() == {0, 1}
    assert weighted([first, bare], [2, 1]).transitions == {}
    assert np.allclose(weighted([first, bare], [2, 0]).loads, first.shares())


@pytest.mark.parametrize("weights", [[1], [1, -1], [0, 0], [1, float("nan")]])
def test_weights_that_are_none(weights: list[float]) -> None:
    """One number from 0 on for each workload."""
    with pytest.raises(InvalidInput, match="weights"):
        weighted([_workload("a", 0), _workload("b", 1)], weights)


def test_workloads_of_other_models_do_not_mix() -> None:
    """Other experts, other layers."""
    with pytest.raises(InvalidInput, match="'b' has 4 experts in a layer, 'a' 8"):
        weighted([_workload("a", 0), _workload("b", 1, experts=4)], [1, 1])
    with pytest.raises(InvalidInput, match=r"counts other layers than 'a': 3-4, 7"):
        weighted([_workload("a", 0), _workload("b", 1, (3, 4, 7))], [1, 1])


def test_restricted_keeps_tables_between_neighbours() -> None:
    """Without layer 4 nothing is known of what passes from 3 to 5."""
    whole = _workload("a", 0, (3, 4, 5, 9))
    cut = restricted(whole, [9, 5, 3])
    assert cut.layers == (3, 5, 9)
    assert (cut.loads == whole.loads[[0, 2, 3]]).all()
    assert set(cut.transitions) == {1}
    assert (cut.transitions[1] == whole.transitions[2]).all()
    assert set(cut.coactivation) == {0}
    with pytest.raises(InvalidInput, match="choose among 3-5, 9"):
        restricted(whole, [6])


def test_rows_without_numbers_get_those_of_the_model() -> None:
    """58 rows counted from 0 are layers 3 to 60 of a model with three dense layers; 57 rows could be any."""
    sparse = range(3, 61)
    assert of_model(_workload("a", 0, tuple(range(58))), sparse, 8).layers == tuple(sparse)
    assert of_model(_workload("a", 0, (3, 7, 60)), sparse, 8).layers == (3, 7, 60)
    with pytest.raises(InvalidInput, match=r"counts layers 0-2, which are no layers of experts"):
        of_model(_workload("a", 0, tuple(range(57))), sparse, 8)
    with pytest.raises(InvalidInput, match="has 8 experts in a layer, the model has 256"):
        of_model(_workload("a", 0), sparse, 256)


@given(st.integers(0, 50), st.integers(0, 50))
def test_agreement_is_the_correlation_of_loads(first: int, second: int) -> None:
    """In each layer that both have, whatever was counted in all."""
    one, other = _workload("a", first % 7, (3, 4, 5)), _workload("b", second % 7 + 7, (2, 4, 5))
    found = agreement(one, other)
    assert found.layers == (4, 5)
    expected = [np.corrcoef(one.loads[row], other.loads[row])[0, 1] for row in (1, 2)]
    assert found.correlations == pytest.approx(expected)
    assert found.lowest[1] == min(found.correlations)
    assert agreement(one, one).mean == pytest.approx(1)


def test_uniform_loads_agree_with_uniform_loads_alone() -> None:
    """A correlation with a constant is not defined."""
    flat, other = (
        RoutedWorkload("flat", (3,), np.ones((1, 4))),
        RoutedWorkload("b", (3,), np.array([[1.0, 2, 3, 4]])),
    )
    assert agreement(flat, flat).mean == 1
    assert agreement(flat, other).mean == 0
    assert agreement(other, flat).sentence() == "planned for b, flat differs: correlation 0.00, in layer 3 0.00"
    with pytest.raises(InvalidInput, match="share no layer"):
        agreement(other, RoutedWorkload("c", (4,), np.ones((1, 4))))
