"""Collectives inside a domain agree with the measured curves."""

from __future__ import annotations

import numpy as np

from cluster_models.cluster.measurements import Collective
from cluster_models.links.collective_curves import domain_time_s
from solver.costs.collectives import domain_collective_s
from tests.solver.cost_cases import H100


def test_every_row_is_timed_at_its_own_group_size() -> None:
    """Rows of different sizes in one call take what each would take alone; one rank takes nothing."""
    ranks, sizes = np.array([1.0, 2.0, 8.0, 2.0]), np.array([1e8, 1e8, 1e8, 1e6])
    seconds = domain_collective_s(H100, Collective.ALL_GATHER, ranks, sizes)
    assert seconds[0] == 0
    for row in (1, 2, 3):
        alone = domain_time_s(H100, Collective.ALL_GATHER, int(ranks[row]), sizes[row : row + 1])
        assert seconds[row] == alone[0]


def test_more_bytes_take_longer() -> None:
    """Above the start-up time seconds grow with the message."""
    sizes = np.array([1e7, 1e8, 1e9])
    seconds = domain_collective_s(H100, Collective.REDUCE_SCATTER, np.full(3, 8.0), sizes)
    assert (np.diff(seconds) > 0).all()
