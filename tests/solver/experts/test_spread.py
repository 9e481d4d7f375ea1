"""Ranks over nodes: the balance stays, the share inside nodes grows."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.experts.layout import ExpertLayout
from solver.experts.loads import node_local_share, rank_loads
from solver.experts.packing import spread


@given(st.integers(0, 10_000), st.sampled_from([(8, 2, 24), (6, 3, 12), (8, 4, 16)]))
@settings(max_examples=20, derandomize=True)
def test_spreading_keeps_loads_and_never_loses_locality(seed: int, form: tuple[int, int, int]) -> None:
    """The loads of the ranks are the same numbers in another order."""
    random, layout = np.random.default_rng(seed), ExpertLayout(*form)
    shares = random.random(layout.slots_per_rank + 4)
    held = np.array([random.permutation(len(shares))[: layout.slots_per_rank] for _ in range(layout.ranks)])
    after = spread(shares, held, layout)
    before_rows, rows = held.reshape(1, -1), after.reshape(1, -1)
    assert np.allclose(
        np.sort(rank_loads(rows, shares[None, :], layout)),
        np.sort(rank_loads(before_rows, shares[None, :], layout)),
    )
    assert (
        node_local_share(rows, shares[None, :], layout)
        >= node_local_share(before_rows, shares[None, :], layout) - 1e-9
    )


def test_two_copies_go_to_two_nodes() -> None:
    """Both copies of the hot expert on one node serve half of what they serve on two."""
    shares, layout = np.array([2.0, 1.0, 1.0, 0.1, 0.1]), ExpertLayout(4, 2, 8)
    held = np.array([[0, 3], [0, 4], [1, 3], [2, 4]])
    after = spread(shares, held, layout)
    assert sorted(int(rank) // 2 for rank in np.flatnonzero((after == 0).any(axis=1))) == [0, 1]


def test_ranks_of_unequal_speed_stay_where_they_are() -> None:
    """A map made for fast and slow ranks is not shuffled."""
    layout = ExpertLayout(4, 2, 8, (1.0, 1.0, 2.0, 2.0))
    held = np.array([[0, 3], [0, 4], [1, 3], [2, 4]])
    assert (spread(np.ones(5), held, layout) == held).all()
