"""TensorRT-LLM: ``trtllm-serve``, over several hosts started by one ``mpirun`` on the first.

Data parallel attention makes every GPU of a stage an attention rank; sizes and formats stand in a YAML file beside
the script, which replaces what its arguments would say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from app.exports.options import Options
from app.exports.serving.deployment import Server
from app.exports.serving.engine import Engine, Flag
from cluster_models.serving.replicas import GpuPlace, Phase
from cluster_models.serving.workload import CacheFormat


def shape(server: Server, options: Options) -> Iterator[Flag]:  # noqa: ARG001 - the shape of every engine
    """Degrees of a server, and the name of its YAML file."""
    worker = server.worker
    if worker.attention_data > 1 and worker.tensor > 1:
        reason = "attention is cut over all GPUs of a stage or over none of them"
        raise server.refused("worker.tensor", worker.tensor, reason, "pin tensor or attention_data to 1")
    yield "--tp_size", str(worker.stage_gpus)
    yield "--pp_size", str(worker.pipeline)
    if server.served.architecture.experts is not None:
        yield "--ep_size", str(worker.expert)
    yield "--extra_llm_api_options", config_name(server)


def hosts(server: Server) -> tuple[GpuPlace, ...]:
    """Hosts in the order of the plan's ranks, which is TensorRT-LLM's."""
    places = server.hosts()
    if len({place.gpus for place in places}) > 1:
        gpus = {place.node: place.gpus for place in places}
        raise server.refused("places", gpus, "one list of GPUs is given to all hosts", "plan whole nodes")
    return places


def process(server: Server, slot: int, leader: str, options: Options) -> Iterator[Flag]:  # noqa: ARG001 - likewise
    """Where the server answers, and what each host gives."""
    yield "--gpus_per_node", str(len(hosts(server)[0].gpus))
    yield "--host", "0.0.0.0"  # noqa: S104 - a server is for others
    yield "--port", str(server.http_port)


def config_name(server: Server) -> str:
    """Name of the YAML file of a server."""
    return f"replica-{server.number}.yaml"


def config(server: Server, options: Options) -> dict[str, Any]:
    """The YAML file of a server."""
    worker, workload, replica = server.worker, server.served.workload, server.replica
    cache: dict[str, Any] = {"free_gpu_memory_fraction": round(server.memory_fraction, 6)}
    if workload.cache_format is CacheFormat.FP8:
        cache |= {"dtype": "fp8"}
    made: dict[str, Any] = {
        "enable_attention_dp": worker.attention_data > 1,
        "max_batch_size": replica.sequence_limit,
        "max_num_tokens": replica.token_limit,
        "enable_chunked_prefill": True,
        "kv_cache_config": cache,
    }
    if worker.attention_data > 1 and replica.phase is Phase.BOTH and workload.engine.held_steps:
        held = {"enable_balance": True, "timeout_iters": workload.engine.held_steps, "batching_wait_iters": 0}
        made["attention_dp_config"] = held
    if workload.speculation is not None:
        made["speculative_config"] = _drafts(server, workload.speculation.draft_tokens, options)
    if replica.phase is Phase.PREFILL:
        made["disable_overlap_scheduler"] = True
    if replica.phase is not Phase.BOTH:
        made["cache_transceiver_config"] = {"backend": "DEFAULT"}
    return made


def _drafts(server: Server, tokens: int, options: Options) -> dict[str, Any]:
    if server.served.architecture.prediction_layers > 0:
        return {"decoding_type": "MTP", "num_nextn_predict_layers": tokens}
    return {"decoding_type": "Eagle", "max_draft_len": tokens, "speculative_model_dir": options.draft_path}


def _image(generation: str) -> str:
    return f"nvcr.io/nvidia/tensorrt-llm/release:{generation.removeprefix('trtllm-')}.0"


TRTLLM: Final = Engine("trtllm", shape, hosts, process, _image)
