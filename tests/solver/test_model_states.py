"""Weights, gradients and optimizer states under each sharding, precision and framework, checked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.cluster.gpus import Precision
from cluster_models.training.framework_choices import Optimizer
from cluster_models.training.frameworks import framework
from cluster_models.training.optimizer_states import MasterFormat, MomentFormat, OptimizerStates
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.candidates import SHARDING_CODES
from solver.costs.calibration import calibration_of
from solver.costs.memory import StageMemoryParts
from solver.costs.step_costs import step_costs
from tests.solver.cost_cases import H100, LLAMA_70B, WORKLOAD, candidates, even_layers, memory

LAYER = 855_654_400
"""Parameters of a Llama 3 70B layer (its config.json)."""
TABLE = 128256 * 8192


def states(parts: StageMemoryParts, stage: int) -> float:
    """Weights, gradients and optimizer states of a pipeline rank."""
    return float((parts.weights_bytes + parts.gradients_bytes + parts.optimizer_bytes)[0, stage])


def under(name: str, **changes: Any) -> TrainingWorkload:
    """The common workload under a framework generation."""
    return replace(WORKLOAD, framework=framework(name), **changes)


def states_of(first: str, second: str, master: str) -> OptimizerStates:
    """Formats by name."""
    return OptimizerStates(MomentFormat(first), MomentFormat(second), MasterFormat(master))


def row(sharding: Sharding, **degrees: int) -> dict[str, int]:
    """A candidate's columns."""
    return {"sharding": SHARDING_CODES.index(sharding), **degrees}


@pytest.mark.parametrize("data", [1, 2, 16])
def test_megatron_counts_six_bytes_and_twelve_shared_out(data: int) -> None:
    """Megatron-LM's theoretical memory report: 6 + 12 / data ranks with the distributed optimizer, else 18."""
    batch = candidates(row(Sharding.OPTIMIZER, pipeline=4, data=data))
    assert states(memory(batch), 1) == pytest.approx(20 * LAYER * (6 + 12 / data))
    whole = candidates(row(Sharding.NONE, pipeline=4, data=data))
    assert states(memory(whole), 1) == pytest.approx(20 * LAYER * 18)


def test_sgd_keeps_one_moment() -> None:
    """Four bytes less per parameter than Adam."""
    batch = candidates(row(Sharding.NONE, pipeline=4))
    both = (replace(WORKLOAD, optimizer=each) for each in (Optimizer.ADAM, Optimizer.SGD))
    adam, sgd = (memory(batch, workload=workload) for workload in both)
    assert states(adam, 1) - states(sgd, 1) == pytest.approx(4 * 20 * LAYER)


@pytest.mark.parametrize(
    ("formats", "nbytes"),
    [
        (("bf16", "bf16", "remainder"), 2 + 2 + 2),
        (("fp8", "fp16", "fp16"), 1 + 2 + 2),
        (("fp32", "fp32", "remainder"), 4 + 4 + 2),
        (("int8", "int8", "fp32"), 2 * (1 + 4 / 256) + 4),
    ],
)
def test_narrow_states_take_the_bytes_of_their_formats(formats: tuple[str, str, str], nbytes: float) -> None:
    """FP8-LM's 1 + 2 bytes with an FP16 copy; the lower half of an FP32 weight; a scale for 256 elements."""
    batch = candidates(row(Sharding.OPTIMIZER, pipeline=4, data=16))
    parts = memory(batch, workload=replace(WORKLOAD, optimizer_states=states_of(*formats)))
    assert parts.optimizer_bytes[0, 1] == pytest.approx(20 * LAYER * nbytes / 16)


def test_formats_that_are_no_bf16_pair_are_widened_for_the_step() -> None:
    """FusedAdam holds FP32 copies of FP8 and FP16 states, four bytes a parameter each, which take time as well."""
    alone = candidates(row(Sharding.OPTIMIZER, pipeline=8))
    pair, mixed = (
        memory(alone, workload=replace(WORKLOAD, optimizer_states=states_of(*formats)))
        for formats in (("bf16", "bf16", "remainder"), ("fp8", "fp16", "remainder"))
    )
    passing = mixed.activations_bytes + mixed.logits_bytes + mixed.fragmentation_bytes
    owned = pair.optimizer_bytes / 6.0
    np.testing.assert_allclose(mixed.optimizer_bytes, 5.0 * owned + np.maximum(8.0 * owned - passing, 0.0))
    assert states_of("bf16", "fp32", "fp32").widened == 1
    assert states_of("int8", "int8", "fp32").widened == 0


def test_narrow_states_step_faster_unless_they_are_widened() -> None:
    """34 bytes a parameter with FP32 states; 22 with a BF16 pair and remainders."""
    batch = candidates(row(Sharding.OPTIMIZER, pipeline=4))
    full, pair, wide = (
        step_costs(
            batch,
            even_layers(LLAMA_70B, 4),
            architecture=LLAMA_70B,
            workload=replace(WORKLOAD, optimizer_states=each),
            gpu=H100,
            gpus_per_domain=8,
            gpus_per_node=8,
        ).optimizer_s[0, 1]
        for each in (
            states_of("fp32", "fp32", "fp32"),
            states_of("bf16", "bf16", "remainder"),
            states_of("fp8", "fp8", "fp16"),
        )
    )
    assert pair < full < wide
    rate = H100.memory_bytes_per_s * calibration_of(H100, WORKLOAD.framework).memory_share
    assert full - pair == pytest.approx(20 * LAYER * 12 / rate)


def test_fp32_training_keeps_sixteen_bytes() -> None:
    """Weight, gradient and two moments of 4 bytes; no second weight."""
    parts = memory(candidates(row(Sharding.NONE, pipeline=4)), workload=replace(WORKLOAD, precision=Precision.FP32))
    assert states(parts, 1) == pytest.approx(20 * LAYER * 16)
    assert parts.weights_bytes[0, 1] == pytest.approx(20 * LAYER * 4)


def test_mxfp8_weights_carry_their_scales_in_both_copies() -> None:
    """Two bytes and two 32nds."""
    parts = memory(
        candidates(row(Sharding.NONE, pipeline=4)), workload=replace(WORKLOAD, precision=Precision.MXFP8)
    )
    assert parts.weights_bytes[0, 1] == pytest.approx(20 * LAYER * 2.0625)


def test_pytorch_fsdp_keeps_sixteen_bytes_shared_out_and_gathers_layers_and_tables() -> None:
    """FP32 shard, gradient, moments over 64 ranks; two layers, embedding and head in 16 bits; their gradients."""
    parts = memory(candidates(row(Sharding.PARAMETERS, data=64)), workload=under("torchtitan-2025"))
    shard = LLAMA_70B.parameters() / 64
    gathered = 2 * (2 * LAYER + 2 * TABLE) + 4 * (LAYER + 2 * TABLE)
    assert states(parts, 0) == pytest.approx(16 * shard + gathered)


def test_pytorch_fsdp_gathers_a_pipelined_stage_once() -> None:
    """Its weights stay until the last micro-batch, and FP32 gradients wait for it as well."""
    parts = memory(candidates(row(Sharding.PARAMETERS, pipeline=4, data=16)), workload=under("torchtitan-2025"))
    assert states(parts, 1) == pytest.approx(20 * LAYER * (16 / 16 + 2 + 4))


def test_sharded_parameters_of_megatron_keep_a_sixteen_bit_shard_too() -> None:
    """18 bytes shared out."""
    parts = memory(candidates(row(Sharding.PARAMETERS, data=64)))
    shard = LLAMA_70B.parameters() / 64
    gathered = 2 * (2 * LAYER + 2 * TABLE) + 4 * (LAYER + 2 * TABLE)
    assert states(parts, 0) == pytest.approx(18 * shard + gathered)


def test_the_optimizer_s_step_counts_only_beyond_what_activations_took() -> None:
    """InternEvo's FP32 gradients and AdamW temporaries: twelve bytes per owned parameter."""
    stepping = under("internevo-2024")
    quiet = replace(stepping, framework=replace(stepping.framework, step_bytes=0.0))
    alone = candidates(row(Sharding.OPTIMIZER, pipeline=8))
    with_step, without = (memory(alone, workload=workload) for workload in (stepping, quiet))
    passing = without.activations_bytes + without.logits_bytes + without.fragmentation_bytes
    expected = np.maximum(12.0 / 12.0 * without.optimizer_bytes - passing, 0.0)
    np.testing.assert_allclose(with_step.optimizer_bytes - without.optimizer_bytes, expected)
    assert expected.max() > 0
    spread = candidates(row(Sharding.OPTIMIZER, pipeline=8, data=64))
    busy, idle = (memory(spread, workload=workload).total_bytes for workload in (stepping, quiet))
    np.testing.assert_allclose(busy, idle)


def test_reduce_buckets_need_replicas_and_hold_no_more_than_the_gradients() -> None:
    """DeepSpeed's buckets."""
    old = under("megatron-deepspeed-2022", precision=Precision.FP16)
    bare = replace(old, framework=replace(old.framework, bucket_bytes=0.0))

    def bucket(**degrees: int) -> float:
        batch = candidates(row(Sharding.OPTIMIZER, pipeline=4, **degrees))
        with_buckets, without = (memory(batch, workload=workload) for workload in (old, bare))
        return float((with_buckets.communication_bytes - without.communication_bytes)[0, 1])

    assert bucket(data=1) == 0.0
    assert bucket(data=2) == pytest.approx(old.framework.bucket_bytes)
    assert bucket(data=2, tensor=64) == pytest.approx(2 * 20 * (LAYER - 2 * 8192) / 64 + 2 * 20 * 2 * 8192)
