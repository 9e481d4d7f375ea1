"""Rings over many nodes: no order of any choice of nodes avoids the links said to be unavoidable."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solver.placement.unavoidable_links import across, merges, parts_below


def fastest_ring_s(times_s: np.ndarray, length: int) -> float:
    """The least slowest hop of any ring of ``length`` nodes, each hop in its direction, by trying all."""
    return min(
        max(times_s[a, b] for a, b in zip(order, (*order[1:], order[0]), strict=True))
        for order in permutations(range(len(times_s)), length)
    )


@given(st.integers(2, 6), st.data())
def test_every_ring_uses_a_link_between_parts(nodes: int, data: st.DataObject) -> None:
    """The fastest link between parts is no slower than the slowest hop of the best ring, whatever the matrix."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    made_from, other = random.choice([1.0, 2.0, 3.0, 5.0], (2, nodes, nodes))
    length = data.draw(st.integers(2, nodes))
    links = across(parts_below(merges(made_from), length))
    for times_s in (made_from, other):
        assert times_s[links].min() <= fastest_ring_s(times_s, length)


@given(st.integers(2, 7), st.data())
def test_parts_are_what_faster_links_hold_together(nodes: int, data: st.DataObject) -> None:
    """Nodes are in one part where a way leads over links faster than the one that would make a part too large."""
    random = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    times_s = random.permutation(nodes * nodes).reshape(nodes, nodes) + 1.0
    faster, length = np.minimum(times_s, times_s.T), data.draw(st.integers(2, nodes))

    def reached(limit: float) -> np.ndarray:
        near = (faster <= limit) | np.eye(nodes, dtype=bool)
        return np.linalg.matrix_power(near.astype(float), nodes) > 0

    slowest = min(limit for limit in faster.ravel() if reached(limit).sum(axis=1).max() >= length)
    assert (across(parts_below(merges(times_s), length)) == ~reached(slowest - 1)).all()


def test_a_ring_over_two_leaves_crosses_and_one_over_a_leaf_does_not() -> None:
    """Two leaves of three nodes: up to three nodes need no slow link, four do."""
    leaf = np.arange(6) // 3
    times_s = np.where(across(leaf), 9.0, 1.0)
    for length, slowest in ((2, 1.0), (3, 1.0), (4, 9.0), (6, 9.0)):
        assert times_s[across(parts_below(merges(times_s), length))].min() == slowest or length <= 3
        assert fastest_ring_s(times_s, length) == slowest
