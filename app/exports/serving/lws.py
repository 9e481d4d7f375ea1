"""LeaderWorkerSet: a group of pods for each replica, its leader on the first host and its workers on the others.

Fields as in LeaderWorkerSet ``v1``.  Pods of a group share a template, so each looks up its process by its node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from app.exports.contract import ExportFile, Files, unreadable
from app.exports.manifests import HOSTNAME, JOB_LABEL, manifest, metadata
from app.exports.options import Options
from app.exports.readback.words import file_named, words
from app.exports.serving.claims import ServerClaims
from app.exports.serving.deployment import Deployment, Server
from app.exports.serving.engines import engine_of
from app.exports.serving.pods import GPUS_CHOSEN, config_map, pod, script_by_node, server_options
from app.exports.serving.readback import Process, claims_of
from app.exports.serving.trtllm import TRTLLM
from app.exports.serving.words import FRONT_PORT, OWN_ADDITIONS, remarks
from cluster_models.errors import InvalidConfiguration
from cluster_models.serving.replicas import Phase

MODEL_LABEL = "meshwright/model"


def render_lws(deployment: Deployment, servers: tuple[Server, ...], options: Options) -> Files:
    """A LeaderWorkerSet for each replica and a Service for each model; refuses split phases."""
    if any(server.replica.phase is not Phase.BOTH for server in servers):
        problem = "requests to split phases go from prefill to decode, which a Service cannot do"
        raise InvalidConfiguration("workload.modes", ["split"], problem, "use the export llm-d or dynamo")
    documents = [document for server in servers for document in _server(server, options)]
    models = dict.fromkeys(server.model for server in servers)
    documents += [_service(model, options) for model in models]
    notes = [
        *remarks(deployment, servers),
        GPUS_CHOSEN,
        "Services share requests out evenly, whatever shares were planned.",
        OWN_ADDITIONS,
    ]
    return (ExportFile("lws.yaml", manifest(tuple(notes), *documents)),)


def _server(server: Server, options: Options) -> list[dict[str, Any]]:
    labels = {JOB_LABEL: server_options(server, options).job, MODEL_LABEL: model_name(server.model, options)}
    made = worker_set(server, options, leader_labels=labels | {"role": "leader"}, worker_labels=labels)
    return [*([config_map(server, options, {})] if engine_of(server) is TRTLLM else []), made]


def worker_set(
    server: Server, options: Options, *, leader_labels: Mapping[str, str], worker_labels: Mapping[str, str]
) -> dict[str, Any]:
    """The LeaderWorkerSet of a replica; raises ``InvalidConfiguration`` where its pods cannot start it."""
    named = server_options(server, options)
    places = engine_of(server).hosts(server)
    if engine_of(server) is TRTLLM and len(places) > 1:
        reason = (
            "over several hosts it is started by one mpirun, which pods of a LeaderWorkerSet are not set up for"
        )
        raise server.refused("places", [place.node for place in places], reason, "use the export trtllm or dynamo")
    script = script_by_node(server, options, '"$LWS_LEADER_ADDRESS"')
    leader = {"metadata": {"labels": dict(leader_labels)}, "spec": pod(server, options, places[:1], script)}
    worker_spec = pod(server, options, places[1:] or places, script)
    worker = {"metadata": {"labels": dict(worker_labels)}, "spec": worker_spec}
    group = {
        "size": len(places),
        "restartPolicy": "RecreateGroupOnPodRestart",
        "leaderTemplate": leader,
        "workerTemplate": worker,
    }
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata(named),
        "spec": {"replicas": 1, "leaderWorkerTemplate": group},
    }


def _service(model: int, options: Options) -> dict[str, Any]:
    name = model_name(model, options)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": options.namespace},
        "spec": {
            "selector": {MODEL_LABEL: name, "role": "leader"},
            "ports": [{"name": "http", "port": FRONT_PORT, "targetPort": "http"}],
        },
    }


def model_name(model: int, options: Options) -> str:
    """Name that the pods of a model's replicas share."""
    return f"{options.job}-model-{model}"


def read_lws(files: Files, servers: Sequence[Server]) -> tuple[ServerClaims, ...]:
    """The servers of the manifest."""
    documents = list(yaml.safe_load_all(file_named(files, "lws.yaml")))
    beside = configurations(documents)
    groups = [each for each in documents if each["kind"] == "LeaderWorkerSet"]
    return tuple(set_claims(group, server, beside) for group, server in zip(groups, servers, strict=True))


def configurations(documents: Sequence[dict[str, Any]]) -> Files:
    """The files that config maps hold."""
    maps = [each["data"] for each in documents if each["kind"] == "ConfigMap"]
    return tuple(ExportFile(name, text) for data in maps for name, text in data.items())


def set_claims(group: dict[str, Any], server: Server, beside: Files) -> ServerClaims:
    """The claims of a LeaderWorkerSet about the server that it starts."""
    number = int(group["metadata"]["name"].rpartition("-")[2])
    template = group["spec"]["leaderWorkerTemplate"]
    leader, worker = template["leaderTemplate"]["spec"], template["workerTemplate"]["spec"]
    hosts = [*_hosts(leader), *(_hosts(worker) if template["size"] > 1 else [])]
    if len(hosts) != template["size"] or group["spec"]["replicas"] != 1:
        raise unreadable("exports.lws.size", template["size"], f"is not one pod for each of {hosts}")
    script, gpus = _script(leader), _gpus(leader)
    if (script, gpus) != (_script(worker), _gpus(worker)):
        raise unreadable("exports.lws.command", script, "differs between leader and workers")
    found = dict(re.findall(r"^    (\S+)\) exec (.*) ;;$", script, re.MULTILINE))
    if list(found) != hosts:
        raise unreadable("exports.lws.hosts", list(found), f"are not {hosts}")
    processes = []
    for host, text in found.items():
        line = text.replace('"$LWS_LEADER_ADDRESS"', hosts[0])
        processes.append(Process(host, (), gpus, tuple(words(line))))
    return claims_of(number, server.engine, processes, beside)


def _hosts(spec: dict[str, Any]) -> list[str]:
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    ((rule,),) = (term["matchExpressions"] for term in terms)
    if (rule["key"], rule["operator"]) != (HOSTNAME, "In"):
        raise unreadable("exports.affinity", rule, "does not name hosts")
    return list(rule["values"])


def _script(spec: dict[str, Any]) -> str:
    return str(spec["containers"][0]["command"][2])


def _gpus(spec: dict[str, Any]) -> int:
    return int(next(iter(spec["containers"][0]["resources"]["limits"].values())))
