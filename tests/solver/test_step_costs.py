"""Costs of a training step: hand-checked sizes, sums, and what must never get cheaper."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidWorkload
from cluster_models.training.workload import Recompute, Sharding
from solver.candidates import RECOMPUTE_CODES, SHARDING_CODES, CandidateBatch
from solver.costs.step_costs import CrossTraffic, StepCosts, step_costs
from tests.solver.cost_cases import H100, LLAMA_70B, WORKLOAD, candidates, costs, even_layers

ROWS = st.fixed_dictionaries(
    {
        "tensor": st.sampled_from([1, 2, 4, 8]),
        "context": st.sampled_from([1, 2, 4]),
        "data": st.sampled_from([1, 2, 8]),
        "micro_batch": st.sampled_from([1, 2, 4]),
        "recompute": st.sampled_from(range(3)),
        "sharding": st.sampled_from(range(3)),
        "rank_order": st.sampled_from(range(2)),
        "pipeline": st.just(4),
        "virtual_pipeline": st.just(2),
    }
)


def flat(result: StepCosts, row: int) -> list[np.ndarray]:
    """All arrays of one candidate, those of cross traffic included."""
    arrays = []
    for column in fields(result):
        value = getattr(result, column.name)
        parts = [getattr(value, f.name) for f in fields(value)] if isinstance(value, CrossTraffic) else [value]
        arrays += [part[row] for part in parts if isinstance(part, np.ndarray)]
    return arrays


@settings(max_examples=12)
@given(st.lists(ROWS, min_size=1, max_size=6))
def test_a_candidate_costs_the_same_alone_and_in_a_batch(rows: list[dict[str, int]]) -> None:
    """Rows do not influence each other."""
    together = costs(candidates(*rows))
    for index, row in enumerate(rows):
        alone = costs(candidates(row))
        for one, many in zip(flat(alone, 0), flat(together, index), strict=True):
            np.testing.assert_allclose(one, many, rtol=1e-12)


@settings(max_examples=12)
@given(ROWS)
def test_parts_add_up_to_forward_and_backward(row: dict[str, int]) -> None:
    """Compute, tensor, context and expert seconds are the whole of a chunk."""
    result = costs(candidates(row))
    parts = result.compute_s + result.tensor_s + result.context_s + result.expert_s
    np.testing.assert_allclose(parts, result.forward_s + result.backward_s, rtol=1e-9)
    assert all((array >= 0).all() for array in flat(result, 0))


@settings(max_examples=12)
@given(ROWS)
def test_more_recomputation_never_takes_less_time(row: dict[str, int]) -> None:
    """None, selective and full recomputation are ordered in time, and forward does not change."""
    codes = [RECOMPUTE_CODES.index(p) for p in (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)]
    result = costs(candidates(*({**row, "recompute": code} for code in codes)))
    assert (np.diff(result.backward_s, axis=0) > 0).all()
    np.testing.assert_array_equal(result.forward_s[0], result.forward_s[2])


@settings(max_examples=12)
@given(ROWS, st.sampled_from([1024, 2048, 4096]))
def test_a_longer_sequence_takes_more_than_its_share(row: dict[str, int], length: int) -> None:
    """Twice the sequence takes much longer on whole GPUs, and never much less on shared ones.

    With few tokens on each GPU a matrix product is paced by reading its weights, and a message by its
    protocol, which nccl changes with the size; gathered parameters do not grow with the sequence at all.
    """
    batch = candidates(row)
    short = costs(batch, workload=replace(WORKLOAD, sequence_length=length))
    long = costs(batch, workload=replace(WORKLOAD, sequence_length=2 * length))
    gathers = row["sharding"] == SHARDING_CODES.index(Sharding.PARAMETERS)
    busy = bool((batch.tensor * batch.context == 1).all()) and not gathers
    for longer, shorter in ((long.forward_s, short.forward_s), (long.backward_s, short.backward_s)):
        assert (longer > (1.8 if busy else 0.8) * shorter).all()


def test_large_layers_run_near_the_sustained_rate() -> None:
    """A Llama-3-70B chunk on one H100 reaches 45 to 75 % of the 989 TFLOP/s peak, as published runs do."""
    batch = candidates({"pipeline": 4})
    result = costs(batch)
    layer_flops = 6 * 8192 * (LLAMA_70B.attention_matrix_parameters() + 3 * 8192 * 28672)
    attention = 12 * 64 * 128 * 8192 * 8192 / 2
    seconds = (result.forward_s + result.backward_s)[0, 1]
    share = 20 * (layer_flops + attention) / seconds / 989e12
    assert 0.45 < share < 0.75


def test_a_stage_is_priced_by_the_kinds_of_its_layers() -> None:
    """Four windowed layers and four full ones take half of what eight of each do, ends included."""
    model = replace(LLAMA_70B, layers=8, sliding_window=512, window_period=2)
    seconds = {}
    for windowed, full in ((0, 0), (8, 0), (0, 8), (4, 4)):
        found = step_costs(
            candidates({}),
            np.array([[windowed, full]]),
            architecture=model,
            workload=WORKLOAD,
            gpu=H100,
            gpus_per_domain=8,
            gpus_per_node=8,
        )
        seconds[windowed, full] = float((found.forward_s + found.backward_s)[0, 0])
    assert seconds[4, 4] == pytest.approx((seconds[8, 0] + seconds[0, 8]) / 2)
    core_flops = 4 * 64 * 128 * 3.5 * (8192 * 8192 / 2 - (8192 * 512 - 512 * 512 / 2))
    assert seconds[0, 8] - seconds[8, 0] > 0.9 * 8 * core_flops / 989e12


def test_transfers_and_gradients_have_their_byte_counts() -> None:
    """Activations in 16 bits over tensor and context ranks; FP32 gradients, 16-bit weights gathered."""
    result = costs(candidates({"pipeline": 4, "tensor": 4, "context": 2, "data": 2}))
    assert result.transfer_bytes[0] == 2 * 8192 * 8192 / 2 / 4
    layer = 8192 * 128 * 2 * (64 + 8) + 3 * 8192 * 28672
    expected = 20 * (layer / 4 + 2 * 8192)
    assert result.reduce_bytes[0, 1] == pytest.approx(4 * expected)
    assert result.gather_bytes[0, 1] == pytest.approx(2 * expected)


def test_sharding_decides_what_travels_at_the_end_of_a_step() -> None:
    """ZeRO-1 scatters what an all-reduce takes and gathers weights; ZeRO-3 moves inside micro-batches."""
    order = (Sharding.NONE, Sharding.OPTIMIZER, Sharding.PARAMETERS)
    rows = [{"data": 64, "tensor": 8, "sharding": SHARDING_CODES.index(sharding)} for sharding in order]
    result = costs(candidates(*rows))
    reduce, gather = result.reduce_bytes[:, 0], result.gather_bytes[:, 0]
    assert reduce[0] == reduce[1] > 0
    assert reduce[2] == gather[0] == gather[2] == 0
    assert result.parameter_traffic.message_bytes[1] == 0
    assert result.parameter_traffic.message_bytes[2] > 0
    assert result.parameter_traffic.forward_count[2, 0] == 80


def test_groups_that_leave_the_node_become_cross_traffic() -> None:
    """Tensor 4 x context 2 fits into 8 GPUs, tensor 4 x context 4 does not."""
    result = costs(candidates({"tensor": 4, "context": 2}, {"tensor": 4, "context": 4}))
    traffic = result.context_traffic
    assert traffic.message_bytes[0] == 0
    assert (traffic.forward_count[0] == 0).all()
    # keys and values of 8192/4 tokens, 2 of 8 key/value heads of 128, 16 bits
    assert traffic.message_bytes[1] == 2 * (8192 / 4) * 2 * (2 * 128)
    assert traffic.forward_count[1, 0] == 80 * 3


def test_a_precision_the_gpu_lacks_is_refused() -> None:
    """An A100 has no FP8: the error names the field and what the GPU knows."""
    kind = replace(H100, peak_flops={Precision.BF16: 312e12})
    batch: CandidateBatch = candidates({})
    with pytest.raises(InvalidWorkload, match=r"workload\.precision.*bf16"):
        step_costs(
            batch,
            even_layers(LLAMA_70B, 1),
            architecture=LLAMA_70B,
            workload=replace(WORKLOAD, precision=Precision.FP8),
            gpu=kind,
            gpus_per_domain=8,
            gpus_per_node=8,
        )
