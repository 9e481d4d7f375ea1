"""Remarks on top of launch files: what the plan is, and what the files cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from app.exports.power import cap_command
from app.exports.serving.deployment import Deployment, Server
from app.exports.serving.sglang import BOOTSTRAP_PORT
from app.presentation.figures import percent, plural
from cluster_models.serving.replicas import Phase

FRONT_PORT: Final = 9000
OWN_ADDITIONS: Final = (
    "Add volumes with the weights, and secrets. Names of nodes and their label kubernetes.io/hostname must agree."
)


def requests_to(server: Server) -> str:
    """Where it answers, and how much."""
    share = percent(server.replica.share, places=1)
    return f"takes {share} of the requests at http://{server.first_host}:{server.http_port}"


def remarks(deployment: Deployment, servers: Sequence[Server]) -> list[str]:
    """The first comments of a file: its servers, and those of the plan that it leaves to another format."""
    titles = " and ".join(sorted({server.engine.title for server in servers}))
    names = " and ".join(dict.fromkeys(server.served.architecture.name for server in servers))
    gpus = sum(server.worker.gpus for server in servers)
    hosts = {place.node for server in servers for place in server.replica.places}
    size = f"{plural(gpus, 'GPU')} on {plural(len(hosts), 'host')}"
    lines = [f"Meshwright: {plural(len(servers), 'replica')} of {names} by {titles}, {size}."]
    others = [server for server in deployment.servers if server not in servers]
    if others:
        left = ", ".join(str(server.number) for server in others)
        families = " and ".join(sorted({server.engine.family for server in others}))
        lines.append(f"Replicas {left} of the plan are not in this file: export {families} as well.")
    return [*lines, *_caps(servers)]


def _caps(servers: Sequence[Server]) -> Iterator[str]:
    """Power caps, which only the administrator of a host may set."""
    for replica in (server.replica for server in servers):
        if (watts := replica.power_cap_watts) is not None:
            for place in replica.places:
                words = cap_command(replica.gpu_kind, watts, place.gpus)
                yield f"Before, as root on {place.node}: {words}"


def balanced(servers: Sequence[Server]) -> list[str]:
    """Balancer that hands requests out to the servers."""
    split = [server for server in servers if server.replica.phase is not Phase.BOTH]
    if split:
        both = [server for server in servers if server.replica.phase is Phase.BOTH]
        whole = ", ".join(f"{each.number} ({percent(each.replica.share)})" for each in both)
        beside = [f"Requests that go past this front, to replicas that do both phases: {whole}."] if both else []
        return [*_split_front(split), *beside]
    if len(servers) > 1:
        return ["Each replica has its share of the requests: the export nginx balances them so."]
    return []


def _split_front(servers: Sequence[Server]) -> list[str]:
    """How requests go from prefill to decode, by the first engine's own means."""
    match servers[0].engine.family:
        case "sglang":
            words = ["python3 -m sglang_router.launch_router --pd-disaggregation --port", str(FRONT_PORT)]
            for server in servers:
                url = f"http://{server.first_host}:{server.http_port}"
                is_prefill = server.replica.phase is Phase.PREFILL
                words.append(f"--prefill {url} {BOOTSTRAP_PORT + server.slot}" if is_prefill else f"--decode {url}")
            return [f"Then, on one host: {' '.join(words)}"]
        case "trtllm":
            return ["Then, on one host: trtllm-serve disaggregated -c disaggregated.yaml"]
        case _:
            return ["vLLM has no front for split phases of its own: use the export dynamo, or a proxy of your own."]
