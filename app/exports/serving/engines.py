"""The engines that exports know, by family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from app.exports.serving.deployment import Server
from app.exports.serving.engine import Engine
from app.exports.serving.sglang import SGLANG
from app.exports.serving.trtllm import TRTLLM
from app.exports.serving.vllm import VLLM

ENGINES: Final[Mapping[str, Engine]] = MappingProxyType({each.family: each for each in (VLLM, SGLANG, TRTLLM)})


def engine_of(server: Server) -> Engine:
    """The engine of a server; raises ``InvalidConfiguration`` where exports have no words for it."""
    engine = ENGINES.get(server.engine.family)
    if engine is None:
        remedy = "name an engine of vLLM, SGLang or TensorRT-LLM in the workload"
        raise server.refused("worker", str(server.worker), "exports have no words for this engine", remedy)
    return engine
