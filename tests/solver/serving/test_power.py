"""Power drawn by steps and deployments, and steps under power caps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.draw import draw_law
from cluster_models.cluster.power import power_curve
from cluster_models.errors import InvalidWorkload
from cluster_models.serving.workload import Pool, ServingWorkload, WeightFormat, Worker
from solver.serving.cases import ServingCase, arrays_of
from solver.serving.draw import answers_in_use, prompts_in_use
from solver.serving.predict import ServingPrediction, predict_serving
from tests.solver.serving.cases import case

BOARD = gpu_kind("H100").power_watts


def _case(load: float, *, cap: float | None = None, split: bool = False, inputs: int = 1024) -> ServingCase:
    workload = ServingWorkload(inputs, 512, concurrency=load, weights=WeightFormat.FP8)
    made = case(workload=workload, prefill=Pool(Worker(4)) if split else None)
    return replace(made, power_caps_watts=(cap, cap))


def _predicted(load: float, **given: float | None) -> ServingPrediction:
    return predict_serving(_case(load, **given))


def test_work_in_use_is_counted_by_hand() -> None:
    """A dense model on four ranks: weights once a step, 2 FLOPs a weight and token, of answers and of prompts."""
    made = _case(16.0)
    arrays = arrays_of([made])
    loads, one = arrays.decode, arrays.traffic.concurrency / 16.0
    memory, compute = answers_in_use(loads, arrays.traffic, one, 16.0 * one)
    steps = 511 / 16
    cache = 16 * (1024 + 256) * loads.cache_full_bytes
    assert memory == pytest.approx(steps * (loads.dense_bytes + cache) / loads.memory_bytes_per_s, rel=0.01)
    attention = 16 * (1024 + 256) * loads.decode_attention_flops / loads.attention_peak
    assert compute == pytest.approx(
        steps * (16 * loads.dense_flops_per_token / loads.dense_peak + attention), rel=0.01
    )
    _, prompts = prompts_in_use(arrays.prefill, arrays.traffic, one)
    assert prompts > 1024 * loads.dense_flops_per_token / loads.dense_peak
    assert prompts < 1.2 * 1024 * loads.dense_flops_per_token / loads.dense_peak


@pytest.mark.parametrize("split", [False, True])
def test_more_requests_draw_more_and_never_more_than_boards(split: bool) -> None:
    """From about the floor of the law up, as the interval's ends do; on more GPUs where pools are split."""
    gpus = 8 if split else 4
    drawn = [_predicted(load, split=split).drawn_watts for load in (1.0, 8.0, 64.0, 512.0)]
    values = [each.value / (gpus * BOARD) for each in drawn]
    assert values == sorted(values)
    assert draw_law().floor < values[0] < values[-1] <= 1.0
    assert all(each.low < each.value <= each.high <= gpus * BOARD for each in drawn)


def test_caps_slow_only_steps_that_draw_more() -> None:
    """One sequence decodes as without a cap of 0.8; a long prompt, which draws all, loses what was measured."""
    free, slow = (_predicted(1.0, cap=cap, inputs=8192) for cap in (None, 0.8 * BOARD))
    assert slow.decode == free.decode
    lost = power_curve("H100-SXM5-80GB").compute_share(0.8)
    assert 1.0 < slow.prefill.dense_s / free.prefill.dense_s <= 1.01 / lost
    assert slow.prefill.collective_s == free.prefill.collective_s
    times = [_predicted(256.0, cap=share * BOARD).token_s.value for share in (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)]
    assert times == sorted(times)
    assert times[-1] > 1.1 * times[0]


def test_capped_gpus_draw_their_cap_at_most() -> None:
    """However many requests; a cap that nobody could price is refused."""
    found = _predicted(512.0, cap=0.6 * BOARD).drawn_watts
    assert found.value <= found.high <= 4 * 0.6 * BOARD * (1 + 1e-9)
    with pytest.raises(InvalidWorkload, match="give at least 350"):
        _predicted(1.0, cap=0.4 * BOARD)
