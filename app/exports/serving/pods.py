"""Pods of servers on Kubernetes: pinned to their hosts, with as many GPUs as planned there.

Which GPUs of a host a pod gets is the device plug-in's choice; every file says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from app.exports.manifests import HOST_NETWORK, one_pod_a_host, shared_memory
from app.exports.options import DEFAULTS, Options
from app.exports.serving.deployment import Server
from app.exports.serving.engine import command
from app.exports.serving.engines import engine_of
from app.exports.serving.trtllm import TRTLLM, config, config_name
from app.exports.serving.yaml_text import yaml_text
from cluster_models.serving.replicas import GpuPlace

CONFIG_FOLDER: Final = "/config"
GPUS_CHOSEN: Final = "Which GPUs of a host a pod gets is the device plug-in's choice: it has as many as planned."
_LEADER: Final = "leader.invalid"
"""Stands for the address of the first pod until the words are shell text."""


def server_options(server: Server, options: Options) -> Options:
    """The options with the name of one server's pods."""
    return replace(options, job=f"{options.job}-{server.number}")


def image_of(server: Server, options: Options) -> str:
    """The image given, else one of the engine's generation."""
    return engine_of(server).image(server.engine.name) if options.image == DEFAULTS.image else options.image


def container(server: Server, options: Options, place: GpuPlace, **more: Any) -> dict[str, Any]:
    """The one container of a pod with the GPUs of ``place``, and what else is given of it."""
    limits: dict[str, int] = {options.gpu_resource: len(place.gpus)}
    if options.rdma_resource:
        limits[options.rdma_resource] = options.rdma_count
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108 - where NCCL looks for it
    if engine_of(server) is TRTLLM:
        mounts.append({"name": "config", "mountPath": CONFIG_FOLDER})
    made = {"image": image_of(server, options), **more, "resources": {"limits": limits}, "volumeMounts": mounts}
    if options.ipc_lock and (options.rdma_resource or options.host_network):
        made["securityContext"] = {"capabilities": {"add": ["IPC_LOCK"]}}
    return made


def volumes(server: Server, options: Options) -> list[dict[str, Any]]:
    """Shared memory, and the configuration of an engine that reads a file."""
    made = [shared_memory(options)]
    if engine_of(server) is TRTLLM:
        made.append({"name": "config", "configMap": {"name": server_options(server, options).job}})
    return made


def config_map(server: Server, options: Options, more: dict[str, Any]) -> dict[str, Any]:
    """The file of an engine that reads one, with ``more`` keys in it."""
    named = server_options(server, options)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": named.job, "namespace": named.namespace},
        "data": {config_name(server): yaml_text(config(server, options) | more)},
    }


def pod(server: Server, options: Options, places: Sequence[GpuPlace], script: str) -> dict[str, Any]:
    """The pod spec of processes that find out by their node which they are; ``places`` are where they may run."""
    answers = places[0].node == engine_of(server).hosts(server)[0].node
    probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10, "failureThreshold": 360}
    ports = {"ports": [{"name": "http", "containerPort": server.http_port}], "readinessProbe": probe}
    here = container(
        server,
        options,
        places[0],
        name="server",
        command=["bash", "-c", script],
        env=[{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        **(ports if answers else {}),
    )
    network = HOST_NETWORK if options.host_network else {}
    hosts = tuple(place.node for place in places)
    affinity = one_pod_a_host(server_options(server, options), hosts)
    return network | {"affinity": affinity, "containers": [here], "volumes": volumes(server, options)}


def script_by_node(server: Server, options: Options, leader: str) -> str:
    """A bash script that starts the process of the node it runs on; ``leader`` is shell text."""
    cases = []
    for slot, place in enumerate(engine_of(server).hosts(server)):
        words = command(engine_of(server), server, slot, _LEADER, options)
        words = [f"{CONFIG_FOLDER}/{word}" if word == config_name(server) else word for word in words]
        cases.append(f"    {place.node}) exec {shlex.join(words).replace(_LEADER, leader)} ;;")
    return "\n".join(
        [
            'case "$NODE_NAME" in',
            *cases,
            '    *) echo "$NODE_NAME is not of this replica" >&2; exit 2 ;;',
            "esac",
            "",
        ]
    )
