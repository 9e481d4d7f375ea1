"""All exports of serving plans by name: servers on hosts, then Kubernetes, then the plan itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from app.documents.serving_plan import ServingPlanDocument
from app.exports.contract import JSON, SHELL, TEXT, YAML, ZIP, ExportFile, Family, Files
from app.exports.options import Options
from app.exports.serving.claims import ServerClaims
from app.exports.serving.contract import ServingExport
from app.exports.serving.deployment import Deployment, Server
from app.exports.serving.dynamo import read_dynamo, render_dynamo
from app.exports.serving.llmd import read_llmd, render_llmd
from app.exports.serving.lws import read_lws, render_lws
from app.exports.serving.nginx import render_nginx
from app.exports.serving.readback import read_script
from app.exports.serving.script import render_mpi, render_script

_POD: Final = ("job", "namespace", "image", "gpu_resource", "rdma_resource", "rdma_count", "shared_memory")
_NETWORK: Final = ("host_network", "ipc_lock")
_WEIGHTS: Final = ("model_path", "draft_path")


def _of(family: str) -> Callable[[Deployment], tuple[Server, ...]]:
    return lambda deployment: deployment.of_family(family)


def _all(deployment: Deployment) -> tuple[Server, ...]:
    return deployment.servers


def _script(name: str) -> Callable[[Deployment, tuple[Server, ...], Options], Files]:
    return partial(render_script, name=name)


def _reader(name: str) -> Callable[[Files, Sequence[Server]], tuple[ServerClaims, ...]]:
    return partial(read_script, name=name)


def _json(deployment: Deployment, servers: tuple[Server, ...], options: Options) -> Files:  # noqa: ARG001
    text = ServingPlanDocument.from_plan(deployment.plan).model_dump_json(indent=2)
    return (ExportFile("serving_plan.json", text + "\n"),)


SERVING_EXPORTS: Final[Mapping[str, ServingExport]] = MappingProxyType(
    {
        export.name: export
        for export in (
            ServingExport(
                "vllm",
                "vllm.sh",
                SHELL,
                "vLLM servers: a script for every host",
                Family.INFERENCE,
                _of("vllm"),
                _script("vllm.sh"),
                _reader("vllm.sh"),
                takes=(*_WEIGHTS, "port"),
            ),
            ServingExport(
                "sglang",
                "sglang.sh",
                SHELL,
                "SGLang servers: a script for every host",
                Family.INFERENCE,
                _of("sglang"),
                _script("sglang.sh"),
                _reader("sglang.sh"),
                takes=(*_WEIGHTS, "port"),
            ),
            ServingExport(
                "trtllm",
                "trtllm.zip",
                ZIP,
                "TensorRT-LLM servers: a script for every host with their YAML",
                Family.INFERENCE,
                _of("trtllm"),
                render_mpi,
                _reader("trtllm.sh"),
                takes=_WEIGHTS,
            ),
            ServingExport(
                "nginx",
                "nginx.conf",
                TEXT,
                "Balancer that gives each replica its share of the requests",
                Family.INFERENCE,
                _all,
                render_nginx,
                None,
            ),
            ServingExport(
                "lws",
                "lws.yaml",
                YAML,
                "LeaderWorkerSet for each replica, pinned to its hosts",
                Family.KUBERNETES,
                _all,
                render_lws,
                read_lws,
                numbered_gpus=False,
                takes=(*_POD, *_NETWORK, *_WEIGHTS, "port"),
            ),
            ServingExport(
                "llm-d",
                "llm-d.zip",
                ZIP,
                "llm-d model servers of vLLM and a router for each model, split phases included",
                Family.KUBERNETES,
                _of("vllm"),
                render_llmd,
                read_llmd,
                numbered_gpus=False,
                takes=(*_POD, "ipc_lock", *_WEIGHTS, "port"),
            ),
            ServingExport(
                "dynamo",
                "dynamo.yaml",
                YAML,
                "Dynamo graph with a service for each replica, split phases included",
                Family.KUBERNETES,
                _all,
                render_dynamo,
                read_dynamo,
                numbered_gpus=False,
                takes=(*_POD, *_WEIGHTS),
            ),
            ServingExport(
                "json", "serving_plan.json", JSON, "The plan with its certificate", Family.DATA, _all, _json, None
            ),
        )
    }
)
