"""Groups of micro-batches on virtual stages: each framework's own rule, and no other."""

from __future__ import annotations

import pytest

from cluster_models.training.frameworks import framework, frameworks
from cluster_models.training.interleaving import (
    Interleaving,
    equal_group,
    micro_batch_group,
    runs_all_forwards_first,
)
from tests.solver.naive_schedule import legal_groups


@pytest.mark.parametrize("name", ["megatron-core-0.8", "megatron-core-0.12", "torchtitan-2025", "nanotron-0.5"])
def test_groups_are_the_smallest_that_the_framework_takes(name: str) -> None:
    """As many as ranks where these divide, which is the smallest there is; none where the framework refuses."""
    known = framework(name)
    for pipeline in range(2, 10):
        for micro_batches in range(1, 60):
            legal = legal_groups(known, pipeline, micro_batches)
            assert micro_batch_group(known, pipeline, micro_batches) == min(legal, default=None)


def test_a_pipeline_of_one_rank_interleaves_nothing() -> None:
    """Whatever its micro-batches."""
    assert micro_batch_group(framework("megatron-core-0.12"), 1, 8) is None


def test_groups_of_hand_checked_cases() -> None:
    """Megatron-Core 0.10 and newer: 9 as 5 + 4, 13 as 7 + 6 (a last group of 3 is refused), 7 all at once."""
    known = framework("megatron-core-0.12")
    assert [micro_batch_group(known, 4, count) for count in (3, 7, 8, 9, 13)] == [None, 7, 4, 5, 7]
    assert [equal_group(4, count) for count in (7, 8, 9, 10)] == [7, 4, None, 5]


def test_a_single_group_passes_forward_whole_up_to_megatron_core_0_9() -> None:
    """Its release 0.10 dropped the case together with the fixed size of groups; PyTorch never had it."""
    names = ("megatron-lm-3", "megatron-core-0.8", "nemo-24.09", "nemo-25.02", "torchtitan-2025")
    assert [runs_all_forwards_first(framework(name)) for name in names] == [True] * 3 + [False] * 2


def test_frameworks_of_deepspeed_and_nanotron_know_no_virtual_stages() -> None:
    """Their pipeline engines give a rank one stage; without a pipeline there is none either."""
    without = {each.name for each in frameworks().values() if each.interleaving is Interleaving.NONE}
    deepspeed = {name for name in frameworks() if "deepspeed" in name}
    assert without == deepspeed | {"nanotron-0.5", "llm-foundry-2023", "transformers-2025"}
