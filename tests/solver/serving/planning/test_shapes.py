"""Worker shapes that an engine can be started with."""

from __future__ import annotations

import pytest

from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.engines import serving_engine
from cluster_models.serving.workload import ServingWorkload, WeightFormat, Worker
from solver.serving.planning.shapes import shapes_on


@pytest.mark.parametrize(
    ("engine", "islands", "worker", "offered"),
    [
        ("trtllm-1.2", 2, Worker(tensor=2, attention_data=8), False),
        ("trtllm-1.2", 2, Worker(attention_data=16), True),
        ("vllm-0.16", 2, Worker(tensor=4, attention_data=4), True),
        ("vllm-0.16", 4, Worker(tensor=2, pipeline=8, attention_data=2), False),
        ("vllm-0.16", 1, Worker(tensor=2, pipeline=2, attention_data=2), True),
        ("sglang-0.5.8", 4, Worker(tensor=2, pipeline=8, attention_data=2), True),
    ],
)
def test_no_shape_is_offered_that_the_engine_cannot_start(
    engine: str, islands: int, worker: Worker, offered: bool
) -> None:
    """Attention ranks of several GPUs in TensorRT-LLM, and of more than a host's in vLLM."""
    load = ServingWorkload(1024, 1024, concurrency=8, weights=WeightFormat.FP8, engine=serving_engine(engine))
    shapes = shapes_on(catalogue_model("deepseek-v3"), load, islands, 8, {})
    assert (worker in {each.worker for each in shapes}) is offered
