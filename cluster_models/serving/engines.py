"""Generations of serving engines: facts of each that decide memory and batching.

Facts from documentation and code stand in ``data/serving_engines.toml`` with their sources; what is fitted on
measured runs (kernel efficiencies, overheads) stands in ``solver/serving/data``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from cluster_models.errors import InvalidWorkload
from cluster_models.shipped import generations


class MemoryShare(StrEnum):
    """Memory of which an engine's memory fraction is a share."""

    TOTAL = "total"
    """The GPU's memory, for weights, activations and cache together (vLLM's ``gpu_memory_utilization``)."""
    STATIC = "static"
    """The GPU's memory, for weights and cache; activations take from the rest (SGLang's
    ``mem_fraction_static``)."""
    FREE = "free"
    """Memory beside weights and activations, for the cache (TensorRT-LLM's ``free_gpu_memory_fraction``)."""


@dataclass(frozen=True, slots=True)
class ServingEngine:
    """One generation.

    ``family`` is the engine, ``released`` the month from which the generation was current.  ``memory_fraction``
    is the share of memory that it takes by default, ``fraction_of`` says of what; ``reserved_bytes`` is what it
    holds besides weights, cache and activations (CUDA context, graphs, communication buffers).
    ``chunk_tokens`` is the most tokens of one step, which cuts long prompts into chunks, ``most_sequences`` the
    default limit of sequences in a step (of an attention rank). ``narrow_cache``: with weights of 8 bits or
    fewer, keys and values are kept in 8 bits by default.  ``held_steps`` is how many steps a worker of
    attention ranks that does both phases is told to hold prompts until each rank has one, 0 where prompts start
    at once.  ``vendors`` are those of the GPUs that it runs on; ``widened_formats`` are weights that it reads
    in their format and multiplies in 16 bits where NVIDIA's tensor cores lack it.  ``has_adapters``: requests may
    name low-rank adapters.
    """

    name: str
    title: str
    family: str
    released: str
    memory_fraction: float
    fraction_of: MemoryShare
    reserved_bytes: float
    chunk_tokens: int
    most_sequences: int
    narrow_cache: bool
    splits: bool
    speculates: bool
    has_expert: bool
    has_attention_data: bool
    has_adapters: bool
    held_steps: int
    weight_formats: tuple[str, ...]
    widened_formats: tuple[str, ...]
    vendors: tuple[str, ...]
    source: str


@cache
def serving_engines() -> MappingProxyType[str, ServingEngine]:
    """Every shipped generation by name, oldest first."""
    return generations("serving_engines.toml", "engines", _engine)


def _engine(name: str, entry: dict[str, Any]) -> ServingEngine:
    listed = {name: tuple(entry[name]) for name in ("weight_formats", "widened_formats", "vendors")}
    return ServingEngine(name=name, **entry | listed | {"fraction_of": MemoryShare(entry["fraction_of"])})


def serving_engine(name: str) -> ServingEngine:
    """The generation called ``name``; raises ``InvalidWorkload`` naming those there are."""
    engine = serving_engines().get(name)
    if engine is None:
        raise InvalidWorkload(
            "workload.engine", name, "no such serving engine", f"use one of {', '.join(serving_engines())}"
        )
    return engine


DEFAULT_ENGINE: Final = serving_engine("vllm-0.16")
"""Engine of a workload that names none."""
