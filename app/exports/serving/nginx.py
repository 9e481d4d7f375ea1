"""A balancer that gives each replica its share of the requests, for replicas that do both phases."""

from __future__ import annotations

from typing import Final

from app.exports.contract import ExportFile, Files
from app.exports.options import Options
from app.exports.serving.deployment import Deployment, Server
from app.exports.serving.words import FRONT_PORT
from cluster_models.errors import InvalidConfiguration
from cluster_models.serving.replicas import Phase

WEIGHTS: Final = 1000
"""Sum of the weights of a model's replicas, about: nginx takes whole numbers."""


def render_nginx(deployment: Deployment, servers: tuple[Server, ...], options: Options) -> Files:  # noqa: ARG001
    """A file to include in the ``http`` block, with a port for each model."""
    if any(server.replica.phase is not Phase.BOTH for server in servers):
        problem = "requests to split phases go from prefill to decode, which a balancer cannot do"
        raise InvalidConfiguration("workload.modes", ["split"], problem, "use the export dynamo")
    blocks = []
    for model, served in enumerate(deployment.plan.models):
        own = [server for server in servers if server.model == model]
        lines = [
            f"    server {each.first_host}:{each.http_port} weight={max(1, round(WEIGHTS * each.replica.share))};"
            for each in own
        ]
        blocks.append(
            "\n".join(
                [
                    f"# {served.architecture.name}",
                    f"upstream meshwright-{model} {{",
                    *lines,
                    "}",
                    "server {",
                    f"    listen {FRONT_PORT + model};",
                    "    proxy_buffering off;  # tokens are passed on as they come",
                    "    proxy_read_timeout 3600s;",
                    f"    location / {{ proxy_pass http://meshwright-{model}; }}",
                    "}",
                    "",
                ]
            )
        )
    return (ExportFile("nginx.conf", "\n".join(blocks)),)
