"""Workloads of reinforcement learning: what follows from prompts and responses, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.reinforcement.workload import (
    Arrangement,
    check_batch,
    check_context,
    joint_lengths,
    rollout_of,
    update_of,
)
from cluster_models.serving.requests import Lengths
from cluster_models.training.frameworks import framework
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.mixed_lengths import Packing
from tests.solver.problems import DENSE
from tests.solver.reinforcement.cases import workload

ONE, TWO = Lengths((100.0,)), Lengths((300.0, 900.0), (0.75, 0.25))
BRIDGE = framework("megatron-bridge-26.02")


def test_a_trained_sequence_is_a_prompt_and_its_response() -> None:
    """Lengths add up; sequences are padded to a multiple of 128 tokens, or as long as is said."""
    joint = joint_lengths(ONE, TWO, Packing.WHOLE)
    assert (joint.lengths, joint.shares) == ((400, 1000), (0.75, 0.25))
    update = update_of(ONE, TWO, responses=64)
    assert (update.sequence_length, update.global_batch) == (1024, 64)
    assert update_of(ONE, TWO, responses=64, context_tokens=2000).sequence_length == 2000


def test_packed_sequences_are_fewer_and_a_number_that_ranks_divide() -> None:
    """550 tokens in the mean: no fewer sequences than all fill, and little more."""
    update = update_of(ONE, TWO, responses=2048, context_tokens=4096, framework=BRIDGE)
    assert update.lengths is not None
    assert update.lengths.packing is Packing.WHOLE
    filled = 2048 * 550 / 4096
    assert filled <= update.global_batch <= 1.15 * filled
    assert update.global_batch % 8 == 0


def test_reference_and_sharing_of_prompts() -> None:
    """A reference is a method of its own; of eight samples of a prompt seven find it prefilled."""
    assert update_of(ONE, TWO, responses=64, framework=BRIDGE).method is TrainingMethod.POLICY
    reference = update_of(ONE, TWO, responses=64, framework=BRIDGE, reference=True)
    assert reference.method is TrainingMethod.POLICY_REFERENCE
    rollout = rollout_of(ONE, TWO, prompts=16, samples=8)
    assert (rollout.concurrency, rollout.new_tokens) == (128.0, pytest.approx(100 / 8))


@pytest.mark.parametrize(
    ("batch", "field"),
    [
        ((0, 4, 1), "workload.prompts"),
        ((8, 0, 1), "workload.samples_per_prompt"),
        ((8, 4, 3), "workload.updates"),
        ((50_000, 4, 1), "workload.prompts"),
    ],
)
def test_batches_that_are_none_are_refused(batch: tuple[int, int, int], field: str) -> None:
    """Groups of no sample, updates that do not divide the prompts, more responses than are simulated."""
    with pytest.raises(InvalidWorkload) as caught:
        check_batch(*batch)
    assert caught.value.field == field


def test_responses_longer_than_the_context_are_refused() -> None:
    """By what is trained on and by what the policy takes, at the field that says it."""
    with pytest.raises(InvalidWorkload, match="together have 1000 tokens") as caught:
        update_of(ONE, TWO, responses=64, context_tokens=800)
    assert caught.value.field == "workload.context_tokens"
    with pytest.raises(InvalidWorkload, match="would fill") as caught:
        update_of(ONE, TWO, responses=64, context_tokens=10**8, framework=BRIDGE)
    assert caught.value.field == "workload.context_tokens"
    with pytest.raises(InvalidWorkload, match="documents have") as caught:
        update_of(ONE, Lengths((1e8,)), responses=64)
    assert caught.value.field == "workload.response_tokens"
    with pytest.raises(InvalidWorkload, match="takes 1024") as caught:
        check_context(replace(DENSE, max_sequence=1024), workload())
    assert caught.value.field == "workload.response_tokens"


def test_fields_of_the_parts_are_named_as_users_write_them() -> None:
    """Those of the training and of the rollout have the part's name in front."""
    with pytest.raises(InvalidWorkload) as caught:
        update_of(ONE, TWO, responses=64, framework=BRIDGE, pinned={"depth": 2})
    assert caught.value.field == "workload.training.pinned"
    with pytest.raises(InvalidWorkload) as caught:
        update_of(ONE, TWO, responses=64, framework=framework("torchtitan-2025"))
    assert caught.value.field == "workload.training.method"
    with pytest.raises(InvalidWorkload) as caught:
        rollout_of(ONE, TWO, prompts=4, samples=2, memory_fraction=2.0)
    assert caught.value.field == "workload.rollout.memory_fraction"


def test_a_step_apart_needs_nodes_apart() -> None:
    """Stale weights without separate nodes, deeper queues, and no arrangement at all."""
    for changes, field in (
        ({"staleness": 1, "arrangements": (Arrangement.COLOCATED,)}, "workload.staleness_steps"),
        ({"staleness": 2}, "workload.staleness_steps"),
        ({"arrangements": ()}, "workload.arrangements"),
    ):
        with pytest.raises(InvalidWorkload) as caught:
            replace(workload(), **changes)
        assert caught.value.field == field
