"""Layers that the host launches slower than the GPU runs them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.frameworks import CudaGraphs
from solver.costs.launching import host_bound
from solver.costs.seconds import Seconds
from tests.solver.cost_cases import behaviour

SECONDS = st.floats(0.0, 5e-3)


def _seconds(forward: float, backward: float) -> Seconds:
    return Seconds(np.array([forward]), np.array([backward]))


@given(SECONDS, SECONDS, SECONDS)
def test_a_pass_lasts_as_long_as_the_slower_of_both(host: float, compute: float, collectives: float) -> None:
    """Compute and collectives together take the longer of what they take and what the host takes."""
    calibration = replace(behaviour(cuda_graphs=CudaGraphs.NONE), layer_host_s=host)
    bound = host_bound(_seconds(compute, 2 * compute), _seconds(collectives, collectives), calibration)
    assert bound.forward.item() + collectives == pytest.approx(max(host, compute + collectives))
    assert bound.backward.item() + collectives == pytest.approx(max(host, 2 * compute + collectives))


def test_graphs_of_the_iteration_free_the_host() -> None:
    """Nothing is launched one by one; graphs of parts leave half."""
    idle = _seconds(0.0, 0.0)
    for graphs, left in ((CudaGraphs.FULL, 0.0), (CudaGraphs.PARTIAL, 5e-4), (CudaGraphs.NONE, 1e-3)):
        calibration = replace(behaviour(cuda_graphs=graphs), layer_host_s=1e-3)
        assert host_bound(idle, idle, calibration).forward.item() == pytest.approx(left)
