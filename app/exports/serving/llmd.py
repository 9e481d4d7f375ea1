"""llm-d: a LeaderWorkerSet for each replica, and the values of a router for each model.

Labels, ports and the proxy beside decode servers are those of llm-d's guides (``wide-ep-lws`` and
``pd-disaggregation``), the values those of its chart ``llm-d-router-standalone``, which makes the InferencePool and
its endpoint picker.  Only the first pod of a replica answers, so only it is in the pool.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import yaml

from app.exports.contract import ExportFile, Files, unreadable
from app.exports.manifests import JOB_LABEL, manifest
from app.exports.options import Options
from app.exports.readback.words import file_named
from app.exports.serving.claims import ServerClaims
from app.exports.serving.deployment import HTTP_PORT, Deployment, Server
from app.exports.serving.lws import MODEL_LABEL, model_name, set_claims, worker_set
from app.exports.serving.pods import GPUS_CHOSEN, server_options
from app.exports.serving.words import OWN_ADDITIONS, remarks
from cluster_models.errors import InvalidConfiguration
from cluster_models.serving.replicas import Phase

SERVERS_FILE: Final = "model-servers.yaml"
CHART: Final = "oci://ghcr.io/llm-d/charts/llm-d-router-standalone"
_SIDECAR: Final = "ghcr.io/llm-d/llm-d-routing-sidecar:v0.7.1"
_SERVING_LABEL: Final = "llm-d.ai/inference-serving"
_ROLE_LABEL: Final = "llm-d.ai/role"
_PICKER_FILE: Final = "pd-config.yaml"
_CACHE_HOST: Final = {
    "name": "VLLM_NIXL_SIDE_CHANNEL_HOST",
    "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
}
"""Where the ranks of a pod hand caches over."""
_PICKER: Final[Mapping[str, Any]] = {
    "apiVersion": "llm-d.ai/v1",
    "kind": "EndpointPickerConfig",
    "plugins": [
        {"type": "always-disagg-pd-decider"},
        {"type": "disagg-profile-handler", "parameters": {"deciders": {"prefill": "always-disagg-pd-decider"}}},
        {"type": "prefill-filter"},
        {"type": "decode-filter"},
        {"type": "inflight-load-producer"},
        {"type": "token-load-scorer"},
        {"type": "active-request-scorer"},
        {"type": "max-score-picker"},
    ],
    "schedulingProfiles": [
        {
            "name": phase,
            "plugins": [{"pluginRef": f"{phase}-filter"}, {"pluginRef": scorer}, {"pluginRef": "max-score-picker"}],
        }
        for phase, scorer in (("prefill", "token-load-scorer"), ("decode", "active-request-scorer"))
    ],
}
"""Every request is prefilled where fewest tokens wait, and decoded where fewest requests are in flight."""


def render_llmd(deployment: Deployment, servers: tuple[Server, ...], options: Options) -> Files:
    """Model servers, and for each model the values of its router; refuses both modes for one model."""
    models = list(dict.fromkeys(server.model for server in servers))
    for model in models:
        phases = {server.replica.phase for server in servers if server.model == model}
        if Phase.BOTH in phases and len(phases) > 1:
            problem = "a router would prefill the requests of replicas that do both phases elsewhere"
            raise InvalidConfiguration("workload.modes", sorted(phases), problem, "plan with one of the two modes")
    notes = (
        *remarks(deployment, servers),
        GPUS_CHOSEN,
        "Routers share requests out by load, whatever shares were planned.",
        OWN_ADDITIONS,
    )
    sets = [_worker_set(_in_its_pod(server), options) for server in servers]
    return (
        ExportFile(SERVERS_FILE, manifest(notes, *sets)),
        *(_router(model, servers, options) for model in models),
    )


def _in_its_pod(server: Server) -> Server:
    """The server on the ports of its own pod: requests come in at the first, to decode servers by their proxy."""
    return replace(server, slot=1 if server.replica.phase is Phase.DECODE else 0)


def _worker_set(server: Server, options: Options) -> dict[str, Any]:
    phase = server.replica.phase
    role = {} if phase is Phase.BOTH else {_ROLE_LABEL: phase.value}
    job = {JOB_LABEL: server_options(server, options).job}
    pool = _pool(server.model, options)
    made = worker_set(server, options, leader_labels=job | pool | role, worker_labels=job)
    if phase is Phase.BOTH:
        return made
    template = made["spec"]["leaderWorkerTemplate"]
    for each in ("leaderTemplate", "workerTemplate"):
        template[each]["spec"]["containers"][0]["env"].append(dict(_CACHE_HOST))
    if phase is Phase.DECODE:
        template["leaderTemplate"]["spec"]["initContainers"] = [_proxy(server)]
    return made


def _proxy(server: Server) -> dict[str, Any]:
    """The proxy that has a request prefilled elsewhere before its decode server goes on with it."""
    return {
        "name": "routing-proxy",
        "image": _SIDECAR,
        "args": [
            f"--port={HTTP_PORT}",
            f"--vllm-port={server.http_port}",
            "--connector=nixlv2",
            "--secure-proxy=false",
        ],
        "ports": [{"name": "proxy", "containerPort": HTTP_PORT}],
        "restartPolicy": "Always",
    }


def _pool(model: int, options: Options) -> dict[str, str]:
    """Labels of the pods that answer requests to a model."""
    return {MODEL_LABEL: model_name(model, options), _SERVING_LABEL: "true"}


def _router(model: int, servers: Sequence[Server], options: Options) -> ExportFile:
    name = model_name(model, options)
    router: dict[str, Any] = {
        "modelServers": {
            "type": "vllm",
            "targetPorts": [{"number": HTTP_PORT}],
            "matchLabels": _pool(model, options),
        }
    }
    if any(server.replica.phase is not Phase.BOTH for server in servers if server.model == model):
        text = yaml.safe_dump(dict(_PICKER), sort_keys=False)
        router["epp"] = {"pluginsConfigFile": _PICKER_FILE, "pluginsCustomConfig": {_PICKER_FILE: text}}
    file_name = _router_file(model)
    served = next(server.served for server in servers if server.model == model)
    notes = (
        f"Router of {served.architecture.name}, in front of the servers of {SERVERS_FILE}.",
        f"helm install {name} {CHART} --namespace {options.namespace} --values {file_name}",
    )
    return ExportFile(file_name, manifest(notes, {"router": router}))


def _router_file(model: int) -> str:
    return f"router-{model}.values.yaml"


def read_llmd(files: Files, servers: Sequence[Server]) -> tuple[ServerClaims, ...]:
    """The servers of the manifest, each in the pool of its model's router and in the role of its phase."""
    groups = list(yaml.safe_load_all(file_named(files, SERVERS_FILE)))
    found = tuple(set_claims(group, server, ()) for group, server in zip(groups, servers, strict=True))
    for group, server, claims in zip(groups, servers, found, strict=True):
        leader = group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
        _check_role(leader, claims)
        router = yaml.safe_load(file_named(files, _router_file(server.model)))["router"]
        labels = router["modelServers"]["matchLabels"]
        if not labels.items() <= leader["metadata"]["labels"].items():
            raise unreadable("exports.llm-d.matchLabels", labels, f"do not match replica {claims.number}")
        _check_ports(leader, claims, router["modelServers"]["targetPorts"])
        if ("epp" in router) != (claims.phase is not Phase.BOTH):
            raise unreadable("exports.llm-d.epp", claims.phase, "is not what the router picks servers for")
    return found


def _check_role(leader: Mapping[str, Any], claims: ServerClaims) -> None:
    role = Phase(leader["metadata"]["labels"].get(_ROLE_LABEL, Phase.BOTH))
    if role is not claims.phase:
        raise unreadable("exports.llm-d.role", role, f"but the engine does {claims.phase}")


def _check_ports(leader: Mapping[str, Any], claims: ServerClaims, targets: Sequence[Mapping[str, int]]) -> None:
    """The router's port must be the engine's, or that of the proxy in front of it."""
    (port,) = (each["containerPort"] for each in leader["spec"]["containers"][0]["ports"])
    if claims.phase is Phase.DECODE:
        (proxy,) = leader["spec"]["initContainers"]
        given = dict(word.partition("=")[::2] for word in proxy["args"])
        if given["--vllm-port"] != str(port):
            raise unreadable("exports.llm-d.--vllm-port", given["--vllm-port"], f"but the engine answers at {port}")
        port = int(given["--port"])
    if [each["number"] for each in targets] != [port]:
        raise unreadable("exports.llm-d.targetPorts", list(targets), f"but requests come in at {port}")
