"""Workers that a model, an engine and a number of GPUs allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cluster_models.model.architecture import Architecture
from cluster_models.serving.engines import ServingEngine
from cluster_models.serving.workload import ServingWorkload, Worker

MOST_PIPELINE: Final = 8
"""Pipeline stages; published deployments have fewer."""
MOST_TENSOR_ACROSS: Final = 16
"""Tensor parallel ranks over several islands; each all-reduce then crosses the network twice a layer."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A worker that takes ``slot`` GPUs of each of ``islands`` islands."""

    worker: Worker
    islands: int
    slot: int


def shapes_on(
    architecture: Architecture, workload: ServingWorkload, islands: int, slot: int, pinned: Mapping[str, int]
) -> Iterator[Shape]:
    """Shapes on ``slot`` GPUs of each of ``islands`` islands.

    Pipeline stages nest: whole stages in an island, or whole islands in a stage.
    """
    gpus = islands * slot
    engine = workload.engine
    for pipeline in _divisors(gpus):
        stage = gpus // pipeline
        if pipeline > min(architecture.layers, MOST_PIPELINE) or (slot % stage and stage % slot):
            continue
        for tensor in _divisors(stage):
            if not _divides_attention(architecture, tensor) or tensor > max(slot, MOST_TENSOR_ACROSS):
                continue
            data = stage // tensor
            if data > 1 and (architecture.experts is None or not engine.has_attention_data):
                continue
            for expert in _expert_degrees(architecture, engine, stage):
                worker = Worker(tensor, pipeline, data, expert)
                if _can_start(engine, worker, islands, slot) and all(
                    getattr(worker, name) == value for name, value in pinned.items()
                ):
                    yield Shape(worker, islands, slot)


def _can_start(engine: ServingEngine, worker: Worker, islands: int, slot: int) -> bool:
    """Whether ``engine`` can be told so.

    TensorRT-LLM cuts attention over all GPUs of a stage or over none; vLLM starts whole attention ranks on a
    host, with all of their stages.
    """
    if worker.attention_data == 1:
        return True
    if engine.family == "trtllm":
        return worker.tensor == 1
    return engine.family != "vllm" or islands == 1 or slot % (worker.tensor * worker.pipeline) == 0


def _divides_attention(architecture: Architecture, tensor: int) -> bool:
    """Whether ``tensor`` ranks divide heads and dense MLPs; key-value heads are repeated where there are fewer."""
    heads = architecture.kv_heads
    grouped = architecture.latent_attention is not None or heads % tensor == 0 or tensor % heads == 0
    return grouped and architecture.heads % tensor == 0 and architecture.mlp_hidden % tensor == 0


def _expert_degrees(architecture: Architecture, engine: ServingEngine, stage: int) -> Iterator[int]:
    """Numbers of expert groups of a stage; vLLM has all its GPUs in one group or each in one of its own."""
    experts = architecture.experts
    if experts is None:
        yield 1
        return
    for degree in _divisors(stage):
        is_offered = degree == 1 or (engine.has_expert and (engine.family != "vllm" or degree == stage))
        if is_offered and experts.count % degree == 0 and experts.hidden % (stage // degree) == 0:
            yield degree


def _divisors(number: int) -> list[int]:
    return [each for each in range(1, number + 1) if number % each == 0]
