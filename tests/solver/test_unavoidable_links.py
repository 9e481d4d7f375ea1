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


def test_a_ring_over_two_leaves_crosses_and_one_over_a_leaf_does_not() -> None:
    """Two leaves of three nodes: up to three nodes need no slow link, four do."""
    leaf = np.arange(6) // 3
    times_s = np.where(across(leaf), 9.0, 1.0)
    for length, slowest in ((2, 1.0), (3, 1.0), (4, 9.0), (6, 9.0)):
        assert times_s[across(parts_below(merges(times_s), length))].min() == slowest or length <= 3
        assert fastest_ring_s(times_s, length) == slowest
