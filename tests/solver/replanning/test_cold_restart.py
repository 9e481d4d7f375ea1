"""Restarts find live state only where the framework hands it over, else a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.jobs.recovery import Migration, StateSource
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.training.workload import Sharding
from solver.costs.training_state import states_of
from solver.replanning.migration import migration
from tests.solver.problems import names
from tests.solver.replanning.moves import gpus_of, hosts_of, job_on, plan_on, replanning, shape

CONFIGURATION = shape(sharding=Sharding.NONE, tensor=8, data=4)
"""Every replica has all of the state: nothing is without a copy when one node goes."""


def moved(policy: RecoveryPolicy, *lost: str) -> Migration:
    """The second node is replaced by another."""
    job = replace(job_on(names(4), CONFIGURATION), recovery=policy)
    new = plan_on(("n0", "n6", "n2", "n3"), CONFIGURATION)
    return migration(job, new, problem=replanning(job, hosts_of(8)), lost=gpus_of(*lost))


def test_live_copies_help_only_where_the_framework_hands_them_over() -> None:
    """A node failed and peers have all it held: a cold restart goes back to the checkpoint all the same."""
    kept = moved(RecoveryPolicy(hands_over_state=True), "n1")
    cold = moved(RecoveryPolicy(steps_since_checkpoint=30), "n1")
    assert (kept.steps_lost, kept.bytes.storage) == (0, 0)
    assert cold.steps_lost == 30
    assert cold.state_without_copy_bytes == 0
    assert not cold.saves_first
    assert {part.source for rank in cold.moved for part in rank.state} == {StateSource.CHECKPOINT}


def test_a_checkpoint_is_saved_before_a_whole_job_stops() -> None:
    """A node drains: nothing is repeated, for a checkpoint is written first and read back, and both take time."""
    policy = RecoveryPolicy(steps_since_checkpoint=30, storage_bytes_per_s=1e9)
    found = moved(policy)
    (state,) = states_of((plan_on(names(4), CONFIGURATION),), policy)
    assert found.steps_lost == 0
    assert found.saves_first
    assert found.save.low_s == pytest.approx(state.model_bytes / 1e9)
    assert found.bytes.storage == pytest.approx(state.model_bytes)
    parts = (found.save, found.transfer, found.restart, found.warm_up)
    assert found.downtime.low_s == pytest.approx(sum(part.low_s for part in parts))
    in_memory = moved(replace(policy, memory_checkpoint=True))
    assert in_memory.bytes.storage == 0
    assert 0 < in_memory.save.high_s < found.save.low_s
    assert not moved(replace(policy, hands_over_state=True)).saves_first
