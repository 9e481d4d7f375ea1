"""vLLM: one ``vllm serve`` a host.

Hosts that share one attention rank are joined by ``--nnodes``, several attention ranks fill the hosts one after the
other (``--data-parallel-start-rank``).  vLLM numbers ranks by attention rank, then stage, then tensor rank, and
limits sequences and tokens of each attention rank by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from app.exports.options import Options
from app.exports.serving.deployment import Server
from app.exports.serving.engine import Engine, Flag
from cluster_models.serving.replicas import GpuPlace, Phase
from cluster_models.serving.workload import CacheFormat, WeightFormat

RANKS: Final = (8, 16, 32, 64, 128, 256)
"""Ranks for which adapters may have room (vllm/config/lora.py)."""


def shape(server: Server, options: Options) -> Iterator[Flag]:
    """Degrees, limits, formats, adapters and drafts of a server."""
    worker, workload = server.worker, server.served.workload
    yield "--tensor-parallel-size", str(worker.tensor)
    yield "--pipeline-parallel-size", str(worker.pipeline)
    if worker.attention_data > 1:
        yield "--data-parallel-size", str(worker.attention_data)
    if worker.expert not in {1, worker.stage_gpus}:
        reason = f"experts lie on all {worker.stage_gpus} GPUs of a stage or are cut over them"
        raise server.refused("worker.expert", worker.expert, reason, f"pin expert to {worker.stage_gpus} or 1")
    if worker.expert > 1:
        yield ("--enable-expert-parallel",)
    yield "--max-num-seqs", str(server.replica.sequence_limit)
    yield "--max-num-batched-tokens", str(server.replica.token_limit)
    yield "--gpu-memory-utilization", f"{server.memory_fraction:g}"
    if workload.weights is WeightFormat.FP8:
        yield "--quantization", "fp8"
    if workload.cache_format is CacheFormat.FP8:
        yield "--kv-cache-dtype", "fp8"
    if workload.adapters is not None:
        yield ("--enable-lora",)
        yield "--max-loras", str(workload.adapters.held)
        yield "--max-cpu-loras", str(workload.adapters.count)
        yield "--max-lora-rank", str(next(rank for rank in RANKS if rank >= workload.adapters.rank))
    if workload.speculation is not None:
        yield "--speculative-config", json.dumps(_drafts(server, options))
    if server.replica.phase is not Phase.BOTH:
        role = "kv_producer" if server.replica.phase is Phase.PREFILL else "kv_consumer"
        yield "--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role})


def hosts(server: Server) -> tuple[GpuPlace, ...]:
    """Hosts in vLLM's order of ranks."""
    return server.hosts(data_before_pipeline=True)


def process(server: Server, slot: int, leader: str, options: Options) -> Iterator[Flag]:
    """How hosts join, and where the first one answers."""
    worker, places = server.worker, hosts(server)
    port = options.port + server.slot
    if len(places) > 1 and worker.attention_data == 1:
        yield "--nnodes", str(len(places))
        yield "--node-rank", str(slot)
        yield "--master-addr", leader
        yield "--master-port", str(port)
    elif len(places) > 1:
        size, each = len(places[0].gpus), worker.tensor * worker.pipeline
        if size % each:
            reason = f"hosts of {size} GPUs hold no whole attention ranks of {each} GPUs"
            raise server.refused(
                "places", [place.node for place in places], reason, f"pin tensor to {size} or less"
            )
        yield "--data-parallel-size-local", str(size // each)
        yield "--data-parallel-address", leader
        yield "--data-parallel-rpc-port", str(port)
        if slot:
            yield "--data-parallel-start-rank", str(slot * (size // each))
    if slot:
        yield ("--headless",)
    else:
        yield "--host", "0.0.0.0"  # noqa: S104 - a server is for others
        yield "--port", str(server.http_port)


def _drafts(server: Server, options: Options) -> dict[str, Any]:
    drafts = server.served.workload.speculation
    assert drafts is not None
    own = server.served.architecture.prediction_layers > 0
    return (
        {"method": "mtp"} | {"num_speculative_tokens": drafts.draft_tokens}
        if own
        else {
            "model": options.draft_path,
            "num_speculative_tokens": drafts.draft_tokens,
        }
    )


def _image(generation: str) -> str:
    return f"vllm/vllm-openai:v{generation.removeprefix('vllm-')}.0"


VLLM: Final = Engine("vllm", shape, hosts, process, _image)
