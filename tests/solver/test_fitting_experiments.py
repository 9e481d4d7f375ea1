"""Which runs to measure: those that tell what decides, and that fit the memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from solver.fitting.experiments import _greedy, choose_experiments
from solver.problem import PlanningProblem
from tests.plans import small_architecture, small_cluster, small_samples, small_workload


def test_the_run_that_decides_is_taken_before_a_louder_one() -> None:
    """A goal that depends on the first parameter: the run that tells of that one, though another tells more."""
    columns = np.array([[0.0, 5.0], [0.3, 0.0], [0.2, 0.0]])
    chosen, errors = _greedy(columns, np.eye(2), np.array([[1.0, 0.0]]), 3)
    assert chosen[:2] == [1, 2]
    assert errors[0] > errors[1] > errors[2] == errors[3]


def test_no_run_is_asked_for_twice() -> None:
    """As many as there are, each once."""
    chosen, _ = _greedy(np.eye(3), np.eye(3), np.eye(3), 10)
    assert sorted(chosen) == [0, 1, 2]


PROBLEM = PlanningProblem(
    ClusterSnapshot("small", small_cluster(), small_samples()), small_architecture(), small_workload()
)


def test_runs_fit_the_cluster_and_its_memory() -> None:
    """No run takes more GPUs or memory than there is; what is asked for differs from run to run."""
    found = choose_experiments(PROBLEM, 5)
    assert len({each.run.configuration for each in found.runs}) == 5
    assert found.competitive <= found.configurations
    for each in found.runs:
        assert each.run.configuration.degrees.gpus <= 12
        assert each.memory_bytes <= 0.9 * each.run.gpu.memory_bytes


def test_what_cannot_fit_says_so() -> None:
    """A head-room that leaves nothing leaves no run to measure."""
    crowded = replace(PROBLEM, workload=replace(PROBLEM.workload, memory_headroom=0.97))
    with pytest.raises(InvalidInput, match="no configuration that fits the memory"):
        choose_experiments(crowded, 3)
