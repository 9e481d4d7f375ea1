"""The figures that files say of a server, and what they must be."""

from __future__ import annotations

from dataclasses import dataclass

from app.exports.serving.deployment import Server
from app.exports.serving.engines import engine_of
from cluster_models.serving.replicas import Phase
from cluster_models.serving.workload import CacheFormat, WeightFormat


@dataclass(frozen=True, slots=True)
class ServerClaims:
    """Claims of files about one server.

    ``hosts`` in the engine's order of ranks; ``gpus`` are their GPUs by number, empty where an orchestrator
    chooses them, ``gpus_per_host`` how many each gives.  Limits are of an attention rank; ``drafts`` and
    ``adapters`` (on its GPUs at a time) are 0 without any, ``float8_weights`` ``None`` where the checkpoint
    alone decides.
    """

    number: int
    phase: Phase
    model_path: str
    hosts: tuple[str, ...]
    gpus: tuple[tuple[int, ...], ...]
    gpus_per_host: int
    tensor: int
    pipeline: int
    attention_data: int
    expert: int
    sequence_limit: int
    token_limit: int
    memory_fraction: float
    float8_weights: bool | None
    narrow_cache: bool
    drafts: int
    adapters: int


def server_claims(server: Server, *, numbered_gpus: bool) -> ServerClaims:
    """All claims that files make of the server, with the values that are true of it."""
    places = engine_of(server).hosts(server)
    worker, workload = server.worker, server.served.workload
    return ServerClaims(
        number=server.number,
        phase=server.replica.phase,
        model_path=server.model_path,
        hosts=tuple(place.node for place in places),
        gpus=tuple(place.gpus for place in places) if numbered_gpus else (),
        gpus_per_host=len(places[0].gpus),
        tensor=worker.tensor,
        pipeline=worker.pipeline,
        attention_data=worker.attention_data,
        expert=worker.expert,
        sequence_limit=server.replica.sequence_limit,
        token_limit=server.replica.token_limit,
        memory_fraction=float(f"{server.memory_fraction:g}"),
        float8_weights=None if server.engine.family == "trtllm" else workload.weights is WeightFormat.FP8,
        narrow_cache=workload.cache_format is CacheFormat.FP8,
        drafts=workload.speculation.draft_tokens if workload.speculation else 0,
        adapters=workload.adapters.held if workload.adapters else 0,
    )
