"""SGLang: one ``sglang.launch_server`` a host.

``--tp-size`` counts all GPUs of a stage, attention ranks included; limits on sequences and chunks are of the whole
server, which shares them out among its attention ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from app.exports.options import Options
from app.exports.serving.deployment import Server
from app.exports.serving.engine import Engine, Flag
from cluster_models.serving.replicas import GpuPlace, Phase
from cluster_models.serving.workload import CacheFormat, WeightFormat

BOOTSTRAP_PORT: Final = 8998
"""Where the first prefill server of a host hands caches over; the next ones follow."""


def shape(server: Server, options: Options) -> Iterator[Flag]:
    """Degrees, limits, formats, adapters, drafts and phase of a server."""
    worker, workload = server.worker, server.served.workload
    yield "--tp-size", str(worker.stage_gpus)
    yield "--pp-size", str(worker.pipeline)
    if worker.attention_data > 1:
        yield "--dp-size", str(worker.attention_data)
        yield ("--enable-dp-attention",)
    if server.served.architecture.experts is not None:
        yield "--ep-size", str(worker.expert)
    yield "--max-running-requests", str(server.replica.sequence_limit * worker.attention_data)
    yield "--chunked-prefill-size", str(server.replica.token_limit * worker.attention_data)
    yield "--mem-fraction-static", f"{server.memory_fraction:g}"
    if workload.weights is WeightFormat.FP8:
        yield "--quantization", "fp8"
    if workload.cache_format is CacheFormat.FP8:
        yield "--kv-cache-dtype", "fp8_e4m3"
    if workload.adapters is not None:
        yield ("--enable-lora",)
        yield "--max-loras-per-batch", str(workload.adapters.held)
        yield "--max-lora-rank", str(workload.adapters.rank)
        yield "--lora-target-modules", "all"
    if workload.speculation is not None:
        yield from _drafts(server, workload.speculation.draft_tokens, options)
    if server.replica.phase is not Phase.BOTH:
        yield "--disaggregation-mode", server.replica.phase.value
        yield "--disaggregation-transfer-backend", "nixl"
    if server.replica.phase is Phase.PREFILL:
        yield "--disaggregation-bootstrap-port", str(BOOTSTRAP_PORT + server.slot)


def hosts(server: Server) -> tuple[GpuPlace, ...]:
    """Hosts in the order of the plan's ranks, which is SGLang's."""
    return server.hosts()


def process(server: Server, slot: int, leader: str, options: Options) -> Iterator[Flag]:
    """How hosts join, and where the server answers."""
    count, stages = len(hosts(server)), server.worker.pipeline
    if count > 1:
        if max(count, stages) % min(count, stages):
            reason = f"{stages} stages and {count} hosts do not divide"
            raise server.refused("worker.pipeline", stages, reason, "pin pipeline to the number of hosts")
        yield "--nnodes", str(count)
        yield "--node-rank", str(slot)
        yield "--dist-init-addr", f"{leader}:{options.port + server.slot}"
    yield "--host", "0.0.0.0"  # noqa: S104 - a server is for others
    yield "--port", str(server.http_port)


def _drafts(server: Server, tokens: int, options: Options) -> Iterator[Flag]:
    """A chain of drafts, verified with the token before them."""
    if server.served.architecture.prediction_layers > 0:
        yield "--speculative-algorithm", "NEXTN"
    else:
        yield "--speculative-algorithm", "EAGLE"
        yield "--speculative-draft-model-path", options.draft_path
    yield "--speculative-num-steps", str(tokens)
    yield "--speculative-eagle-topk", "1"
    yield "--speculative-num-draft-tokens", str(tokens + 1)


def _image(generation: str) -> str:
    return f"lmsysorg/sglang:v{generation.removeprefix('sglang-')}"


SGLANG: Final = Engine("sglang", shape, hosts, process, _image)
