"""Serving workloads, workers and engines: what is refused, and sizes one can check by hand."""

from __future__ import annotations

import math

import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidConfiguration, InvalidInput, InvalidWorkload
from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.checks import check_serving
from cluster_models.serving.engines import serving_engine, serving_engines
from cluster_models.serving.workload import (
    CacheFormat,
    Pool,
    ServingConfiguration,
    ServingWorkload,
    Speculation,
    WeightFormat,
    Worker,
)

WORKLOAD = ServingWorkload(input_tokens=1024, output_tokens=1024, concurrency=8)


def one(worker: Worker) -> ServingConfiguration:
    """One aggregated worker."""
    return ServingConfiguration(Pool(worker))


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_rate_of_zero_or_infinity_is_refused(value: float) -> None:
    """The error names the field."""
    with pytest.raises(InvalidWorkload, match=r"workload\.requests_per_s"):
        ServingWorkload(input_tokens=1, output_tokens=1, requests_per_s=value)


def test_a_load_is_a_concurrency_or_a_rate() -> None:
    """Neither and both are refused."""
    with pytest.raises(InvalidWorkload, match="exactly one"):
        ServingWorkload(input_tokens=1, output_tokens=1)
    with pytest.raises(InvalidWorkload, match="exactly one"):
        ServingWorkload(input_tokens=1, output_tokens=1, concurrency=1, requests_per_s=1)


def test_no_more_tokens_are_accepted_than_drafted() -> None:
    """Speculation yields at most its drafts."""
    with pytest.raises(InvalidWorkload, match="accepted_tokens"):
        Speculation(draft_tokens=1, accepted_tokens=1.5)


def test_experts_are_sliced_over_what_their_groups_leave() -> None:
    """Tensor x attention_data = expert x expert_tensor."""
    worker = Worker(tensor=4, attention_data=2, expert=2, pipeline=2)
    assert (worker.gpus, worker.stage_gpus, worker.expert_tensor) == (16, 8, 4)
    with pytest.raises(InvalidConfiguration, match="must divide"):
        Worker(tensor=4, expert=3)


@pytest.mark.parametrize(
    ("model", "worker", "field"),
    [
        ("llama-3.1-70b", Worker(tensor=3), r"worker\.tensor"),
        ("llama-3.1-70b", Worker(tensor=2, expert=2), r"worker\.expert"),
        ("llama-3.1-70b", Worker(pipeline=81), r"worker\.pipeline"),
        ("gpt-oss-20b", Worker(attention_data=64, expert=64), r"worker\.expert"),
    ],
)
def test_degrees_that_the_model_cannot_take_are_refused(model: str, worker: Worker, field: str) -> None:
    """Heads, layers and experts set limits."""
    with pytest.raises(InvalidConfiguration, match=field):
        check_serving(catalogue_model(model), WORKLOAD, one(worker))


def test_lengths_beyond_the_context_are_refused() -> None:
    """Input and output together count."""
    long = ServingWorkload(input_tokens=8000, output_tokens=1000, concurrency=1)
    with pytest.raises(InvalidWorkload, match="llama-3-70b takes 8192"):
        check_serving(catalogue_model("llama-3-70b"), long, one(Worker(tensor=8)))


def test_an_engine_is_not_asked_for_what_it_cannot_do() -> None:
    """Splitting, formats and expert parallelism came with later generations."""
    old = serving_engine("vllm-0.6")
    split = ServingConfiguration(Pool(Worker(tensor=8)), Pool(Worker(tensor=8)))
    cases: list[tuple[str, ServingWorkload, ServingConfiguration, str]] = [
        ("llama-3.1-70b", ServingWorkload(1024, 1024, 8, engine=old), split, "split"),
        (
            "llama-3.1-70b",
            ServingWorkload(1024, 1024, 8, engine=old, weights=WeightFormat.NVFP4),
            one(Worker(tensor=8)),
            "format",
        ),
        ("mixtral-8x7b", ServingWorkload(1024, 1024, 8, engine=old), one(Worker(tensor=8, expert=8)), "cannot"),
    ]
    for model, workload, configuration, words in cases:
        with pytest.raises(InvalidInput, match=words):
            check_serving(catalogue_model(model), workload, configuration)


def test_four_bit_experts_leave_attention_in_sixteen_bits() -> None:
    """As published checkpoints do; dense models are quantised throughout."""
    workload = ServingWorkload(1024, 1024, 8, weights=WeightFormat.NVFP4)
    assert workload.attention_format(catalogue_model("deepseek-v3")) is WeightFormat.BF16
    assert workload.attention_format(catalogue_model("llama-3.1-70b")) is WeightFormat.NVFP4


def test_a_format_that_the_gpu_lacks_runs_as_a_wider_one() -> None:
    """Hopper has no FP4 tensor cores, Ampere no FP8 ones."""
    hopper, ampere, blackwell = (gpu_kind(name) for name in ("H100", "A100-80GB", "B200"))
    assert WeightFormat.NVFP4.peak_flops(hopper) == hopper.peak_flops[Precision.BF16]
    assert WeightFormat.FP8.peak_flops(ampere) == ampere.peak_flops[Precision.BF16]
    assert WeightFormat.NVFP4.peak_flops(blackwell) == blackwell.peak_flops[Precision.NVFP4]
    assert WeightFormat.MXFP4.peak_flops(blackwell) == blackwell.peak_flops[Precision.FP8]


def test_the_cache_is_narrow_where_the_engine_makes_it_so() -> None:
    """TensorRT-LLM's FP8 checkpoints carry scales of keys and values."""
    narrow = ServingWorkload(1, 1, 1, weights=WeightFormat.FP8, engine=serving_engine("trtllm-1.0"))
    assert narrow.cache_format is CacheFormat.FP8
    assert ServingWorkload(1, 1, 1, weights=WeightFormat.FP8).cache_format is CacheFormat.BF16


def test_every_engine_says_where_its_facts_come_from() -> None:
    """Sources are data."""
    assert all(engine.source and engine.title for engine in serving_engines().values())
    with pytest.raises(InvalidWorkload, match="use one of"):
        serving_engine("no-such-engine")
