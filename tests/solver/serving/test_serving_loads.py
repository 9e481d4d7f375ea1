"""Loads and memory of workers against figures one can check by hand."""

from __future__ import annotations

import numpy as np
import pytest

from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.engines import serving_engine
from cluster_models.serving.workload import CacheFormat, ServingWorkload, WeightFormat, Worker
from solver.serving.cases import ServingCase, arrays_of
from tests.solver.serving.cases import case


def test_a_dense_model_reads_its_matrices_once_a_step() -> None:
    """All parameters but the input embedding, the small ones aside, over the tensor ranks."""
    model = catalogue_model("llama-3.1-70b")
    load = ServingWorkload(1024, 1024, concurrency=8, weights=WeightFormat.BF16)
    loads = arrays_of([case(workload=load, worker=Worker(tensor=4))]).decode
    expected = 2.0 * (model.parameters() - model.embedding_parameters()) / 4
    assert loads.dense_bytes[0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("model", "elements"),
    [("llama-3.1-70b", 80 * 2 * 8 * 128), ("deepseek-v3", 61 * (512 + 64)), ("qwen3-235b-a22b", 94 * 2 * 4 * 128)],
)
def test_cache_of_a_token(model: str, elements: int) -> None:
    """Grouped heads keep keys and values, latent attention one compressed vector (DeepSeek-V2, table 1)."""
    load = ServingWorkload(1024, 1024, concurrency=8, cache=CacheFormat.BF16)
    loads = arrays_of([case(model, worker=Worker(tensor=1), workload=load)]).decode
    assert loads.cache_full_bytes[0] + loads.cache_window_bytes[0] == pytest.approx(2.0 * elements)


def test_tensor_ranks_divide_grouped_caches_but_not_latent_ones() -> None:
    """Every rank of latent attention needs the whole compressed vector; no rank holds less than one head."""
    for model, shrinks in (("llama-3.1-70b", 8.0), ("deepseek-v3", 1.0), ("qwen3-235b-a22b", 4.0)):
        whole, split = (
            arrays_of([case(model, worker=Worker(tensor=tensor))]).decode.cache_full_bytes[0] for tensor in (1, 8)
        )
        assert whole / split == pytest.approx(shrinks)


def test_all_ranks_together_store_the_model() -> None:
    """Expert groups and tensor slices cut the experts, not more."""
    model = catalogue_model("qwen3-235b-a22b")
    for worker in (Worker(tensor=8), Worker(tensor=8, expert=8), Worker(tensor=4, expert=2, pipeline=2)):
        load = ServingWorkload(1024, 1024, concurrency=8, weights=WeightFormat.BF16)
        stored = arrays_of([case("qwen3-235b-a22b", worker=worker, workload=load)]).decode.stored_bytes[0]
        assert stored * worker.gpus == pytest.approx(2.0 * model.parameters(), rel=2e-3)  # each has the router


def _most(serving: ServingCase) -> float:
    return float(arrays_of([serving]).decode_memory.most_sequences[0])


def test_more_memory_never_holds_fewer_requests() -> None:
    """By larger GPUs, larger shares and narrower caches."""
    assert _most(case(gpu="H100")) < _most(case(gpu="H200")) < _most(case(gpu="B300"))
    shares = [
        _most(case(workload=ServingWorkload(1024, 1024, 8, weights=WeightFormat.FP8, memory_fraction=share)))
        for share in (0.7, 0.8, 0.9, 1.0)
    ]
    assert shares == sorted(shares)


def test_requests_of_a_worker_by_hand() -> None:
    """Free memory of 8 x H200 over the cache of 1,536 tokens, the mean of a request that answers as it goes."""
    engine = serving_engine("sglang-0.5.5")
    load = ServingWorkload(1024, 1024, 8, weights=WeightFormat.BF16, engine=engine)
    serving = case(gpu="H200", worker=Worker(tensor=8), workload=load)
    weights = 2.0 * serving.architecture.parameters() / 8
    free = engine.memory_fraction * serving.gpu.memory_bytes - weights
    assert _most(serving) == pytest.approx(free / (1536 * 2 * 80 * 2 * 128), rel=2e-3)


def test_a_model_larger_than_its_worker_does_not_fit() -> None:
    """671e9 bytes on one GPU of 80 GB."""
    fits = [case("deepseek-v3", worker=Worker(tensor=1)), case("deepseek-v3", gpu="B300", worker=Worker(8))]
    arrays = arrays_of(fits)
    assert list(arrays.fits) == [0.0, 1.0]
    assert np.isfinite(arrays.decode_memory.most_sequences).all()
