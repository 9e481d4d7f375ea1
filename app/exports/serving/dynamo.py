"""Dynamo: a graph of a front and a service for each replica, split phases included.

Fields as in ``nvidia.com/v1alpha1`` and the workers' own arguments (``dynamo.vllm``, ``dynamo.sglang``,
``dynamo.trtllm``), which take those of their engines.  The operator adds what joins the hosts of a replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import yaml

from app.exports.contract import ExportFile, Files, unreadable
from app.exports.manifests import HOSTNAME, manifest, metadata
from app.exports.options import DEFAULTS, Options
from app.exports.readback.words import file_named
from app.exports.serving.claims import ServerClaims
from app.exports.serving.deployment import Deployment, Server
from app.exports.serving.engine import Flag, check_flags
from app.exports.serving.engines import engine_of
from app.exports.serving.lws import configurations
from app.exports.serving.pods import CONFIG_FOLDER, GPUS_CHOSEN, config_map, container, image_of, volumes
from app.exports.serving.readback import Process, claims_of
from app.exports.serving.trtllm import TRTLLM, config_name
from app.exports.serving.words import OWN_ADDITIONS, remarks
from cluster_models.errors import InvalidConfiguration
from cluster_models.serving.flags import engine_program
from cluster_models.serving.replicas import GpuPlace, Phase

_RUNTIMES: Final = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "trtllm": "tensorrtllm-runtime"}
_PATH_FLAGS: Final = {"vllm": "--model", "sglang": "--model-path", "trtllm": "--model-path"}
_PHASE_FLAGS: Final = {Phase.PREFILL: "--is-prefill-worker", Phase.DECODE: "--is-decode-worker"}
_TRANSFER: Final = "--kv-transfer-config"
_ENGINE_FILE: Final = "--extra-engine-args"


def render_dynamo(deployment: Deployment, servers: tuple[Server, ...], options: Options) -> Files:
    """One graph; refuses several models, whose requests one front cannot tell apart."""
    if len({server.model for server in servers}) > 1:
        names = [model.architecture.name for model in deployment.plan.models]
        raise InvalidConfiguration("models", names, "a graph serves one model", "plan a deployment for each model")
    if len({server.replica.phase is Phase.BOTH for server in servers}) > 1:
        problem = "a graph splits all requests into phases or none, and this plan does both"
        raise InvalidConfiguration("workload.modes", ["aggregated", "split"], problem, "allow one of the modes")
    main = {"mainContainer": {"image": _image(servers[0], options)}}
    front = {"componentType": "frontend", "replicas": 1, "extraPodSpec": main}
    services: dict[str, Any] = {"Frontend": front}
    for server in servers:
        services[f"{_role(server)}-{server.number}"] = _service(server, options)
    graph = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeployment",
        "metadata": metadata(options),
        "spec": {"backendFramework": servers[0].engine.family, "services": services},
    }
    maps = [config_map(server, options, _degrees(server)) for server in servers if engine_of(server) is TRTLLM]
    notes = [
        *remarks(deployment, servers),
        GPUS_CHOSEN,
        "Replace ${VERSION} by the release of Dynamo that carries this engine.",
        "The front shares requests out by load; which host of a replica leads is the operator's choice.",
        OWN_ADDITIONS,
    ]
    return (ExportFile("dynamo.yaml", manifest(tuple(notes), *maps, graph)),)


def _service(server: Server, options: Options) -> dict[str, Any]:
    places = engine_of(server).hosts(server)
    family = server.engine.family
    words = ["python3", "-m", f"dynamo.{family}"]
    made = container(server, options, places[0], command=words, args=_arguments(server, options))
    del made["resources"]
    made["image"] = _image(server, options)
    several = {"multinode": {"nodeCount": len(places)}} if len(places) > 1 else {}
    return {
        "componentType": "worker",
        **({} if server.replica.phase is Phase.BOTH else {"subComponentType": server.replica.phase.value}),
        "replicas": 1,
        **several,
        "resources": {"limits": {"gpu": str(len(places[0].gpus))}},
        "extraPodSpec": {"affinity": _pinned(places), "volumes": volumes(server, options), "mainContainer": made},
    }


def _arguments(server: Server, options: Options) -> list[str]:
    """The worker's arguments: the engine's own of the replica's shape, and its phase."""
    family, phase = server.engine.family, server.replica.phase
    given: list[Flag] = list(engine_of(server).shape(server, options))
    check_flags(server, given)
    path: list[Flag] = [(_PATH_FLAGS[family], server.model_path)]
    if family == "vllm":
        given = [flag for flag in given if flag[0] != _TRANSFER]
        path += [] if phase is Phase.BOTH else [(_PHASE_FLAGS[phase],)]
    elif family == "trtllm":
        given = [(_ENGINE_FILE, f"{CONFIG_FOLDER}/{config_name(server)}")]
        path += [] if phase is Phase.BOTH else [("--disaggregation-mode", phase.value)]
    return [word for flag in (*path, *given) for word in flag]


def _degrees(server: Server) -> dict[str, Any]:
    """Degrees in the file that ``dynamo.trtllm`` hands to the engine."""
    made = {"tensor_parallel_size": server.worker.stage_gpus, "pipeline_parallel_size": server.worker.pipeline}
    if server.served.architecture.experts is not None:
        made["moe_expert_parallel_size"] = server.worker.expert
    return made


def _image(server: Server, options: Options) -> str:
    if options.image != DEFAULTS.image:
        return image_of(server, options)
    return f"nvcr.io/nvidia/ai-dynamo/{_RUNTIMES[server.engine.family]}:${{VERSION}}"


def _role(server: Server) -> str:
    return "replica" if server.replica.phase is Phase.BOTH else server.replica.phase.value


def _pinned(places: Sequence[GpuPlace]) -> dict[str, Any]:
    match = [{"key": HOSTNAME, "operator": "In", "values": [place.node for place in places]}]
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": match}]}
        }
    }


def read_dynamo(files: Files, servers: Sequence[Server]) -> tuple[ServerClaims, ...]:
    """The servers of the graph."""
    documents = list(yaml.safe_load_all(file_named(files, "dynamo.yaml")))
    beside = configurations(documents)
    (graph,) = (each for each in documents if each["kind"] == "DynamoGraphDeployment")
    services = [
        (name, each) for name, each in graph["spec"]["services"].items() if each["componentType"] == "worker"
    ]
    return tuple(_claims(*named, server, beside) for named, server in zip(services, servers, strict=True))


def _claims(name: str, service: dict[str, Any], server: Server, beside: Files) -> ServerClaims:
    spec = service["extraPodSpec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    hosts = terms[0]["matchExpressions"][0]["values"]
    if service.get("multinode", {"nodeCount": 1})["nodeCount"] != len(hosts) or service["replicas"] != 1:
        raise unreadable(
            "exports.dynamo.nodeCount", service.get("multinode"), f"is not one pod for each of {hosts}"
        )
    phase = Phase(service.get("subComponentType", Phase.BOTH))
    words = _engine_words(spec["mainContainer"]["args"], phase, server, beside)
    process = Process(hosts[0], (), int(service["resources"]["limits"]["gpu"]), tuple(words))
    claims = claims_of(int(name.rpartition("-")[2]), server.engine, [process], beside)
    return ServerClaims(**{**_fields(claims), "hosts": tuple(hosts), "phase": _phase(claims, phase, server)})


def _fields(claims: ServerClaims) -> dict[str, Any]:
    return {name: getattr(claims, name) for name in ServerClaims.__slots__}


def _phase(claims: ServerClaims, phase: Phase, server: Server) -> Phase:
    """The phase that the graph names; refuses one that the engine's own arguments contradict."""
    if server.engine.family != "vllm" and claims.phase is not phase:
        raise unreadable("exports.dynamo.subComponentType", phase, f"but the engine does {claims.phase}")
    return phase


def _engine_words(given: Sequence[str], phase: Phase, server: Server, beside: Files) -> list[str]:
    """The worker's arguments as the words that would start the engine itself."""
    family, rest = server.engine.family, list(given)
    if rest[0] != _PATH_FLAGS[family]:
        raise unreadable("exports.dynamo.args", rest[0], f"must be {_PATH_FLAGS[family]}")
    program, path, rest = list(engine_program(server.engine)), rest[1], rest[2:]
    if family == "vllm" and phase is not Phase.BOTH:
        if rest[0] != _PHASE_FLAGS[phase]:
            raise unreadable("exports.dynamo.args", rest[0], f"must be {_PHASE_FLAGS[phase]}")
        rest = rest[1:]
    if family == "trtllm":
        if phase is not Phase.BOTH:
            if rest[:2] != ["--disaggregation-mode", phase.value]:
                raise unreadable("exports.dynamo.args", rest[:2], f"must say {phase}")
            rest = rest[2:]
        settings = yaml.safe_load(file_named(beside, rest[1].rpartition("/")[2]))
        rest = [
            "--tp_size",
            str(settings["tensor_parallel_size"]),
            "--pp_size",
            str(settings["pipeline_parallel_size"]),
            "--ep_size",
            str(settings.get("moe_expert_parallel_size", 1)),
            "--extra_llm_api_options",
            rest[1],
        ]
    return [*program, path, *rest]
