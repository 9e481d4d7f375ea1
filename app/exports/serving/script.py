"""A script for every host: it starts the processes of a plan that belong there, one line each."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from app.exports.contract import ExportFile, Files
from app.exports.options import Options
from app.exports.serving.deployment import Deployment, Server
from app.exports.serving.engine import command, weight_remarks
from app.exports.serving.engines import engine_of
from app.exports.serving.trtllm import TRTLLM, config, config_name
from app.exports.serving.words import balanced, remarks, requests_to
from app.exports.serving.yaml_text import yaml_text
from app.presentation.serving_words import PHASES
from cluster_models.serving.replicas import Phase

SIDE_CHANNEL_PORT: Final = 5600
_SIDE_CHANNELS: Final = 256
"""Ports that a vLLM server may take for handing caches over, one for each attention rank."""
_BEGIN: Final = r"""set -euo pipefail
HOST="${MESHWRIGHT_HOST:-$(hostname)}"
WANTED=" $* "
PROCESSES=()
serve() { # REPLICA HOST GPUS COMMAND ...: starts one process of a replica where it belongs to this host
    [[ "$2" == "$HOST" ]] && [[ "$WANTED" == "  " || "$WANTED" == *" $1 "* ]] || return 0
    CUDA_VISIBLE_DEVICES="$3" "${@:4}" &
    PROCESSES+=($!)
}
"""
_END: Final = r"""
if [[ ${#PROCESSES[@]} == 0 ]]; then
    echo "$HOST starts nothing of this plan; set MESHWRIGHT_HOST to its name there" >&2; exit 2
fi
trap 'kill "${PROCESSES[@]}" 2>/dev/null || true' INT TERM
STATUS=0
for PROCESS in "${PROCESSES[@]}"; do wait "$PROCESS" || STATUS=$?; done
exit "$STATUS"
"""


def render_script(deployment: Deployment, servers: tuple[Server, ...], options: Options, *, name: str) -> Files:
    """The script of all servers of one engine."""
    lines = [
        "#!/usr/bin/env bash",
        *(f"# {remark}" for remark in remarks(deployment, servers)),
        *(f"# {remark}" for remark in dict.fromkeys(line for each in servers for line in weight_remarks(each))),
        f"# Run on each host: bash {name} [REPLICA ...]; without numbers it starts all that belongs to the host.",
        *(f"# {line}" for line in balanced(servers)),
        _BEGIN,
        *(line for server in servers for line in _server_lines(server, options)),
    ]
    return (ExportFile(name, "\n".join(lines) + _END, executable=True),)


def render_mpi(deployment: Deployment, servers: tuple[Server, ...], options: Options) -> Files:
    """TensorRT-LLM's script with a YAML file for each server, and one for the front of split phases."""
    files = render_script(deployment, servers, options, name="trtllm.sh")
    made = [ExportFile(config_name(each), yaml_text(config(each, options))) for each in servers]
    fronts = [ExportFile("disaggregated.yaml", yaml_text(_front(servers)))] if _is_split(servers) else []
    return (*files, *made, *fronts)


def _server_lines(server: Server, options: Options) -> Iterator[str]:
    engine = engine_of(server)
    places = engine.hosts(server)
    worker = f"{PHASES[server.replica.phase]}, {server.worker}"
    yield f"# Replica {server.number}: {server.served.architecture.name}, {worker}; {requests_to(server)}."
    processes = places[:1] if engine is TRTLLM else places
    for slot, place in enumerate(processes):
        words = command(engine, server, slot, server_leader(server), options)
        words = [*_prefix(server, place.node, [each.node for each in places]), *words]
        gpus = ",".join(map(str, place.gpus))
        yield f"serve {server.number} {place.node} {gpus} {shlex.join(words)}"


def server_leader(server: Server) -> str:
    """The host where the processes of a server meet."""
    return engine_of(server).hosts(server)[0].node


def _prefix(server: Server, host: str, hosts: Sequence[str]) -> list[str]:
    """Words in front of the engine's own: an environment, or the launcher of several hosts."""
    engine = engine_of(server)
    if engine is TRTLLM and len(hosts) > 1:
        each = server.worker.gpus // len(hosts)
        listed = ",".join(f"{name}:{each}" for name in hosts)
        return ["mpirun", "-n", str(server.worker.gpus), "-H", listed, "-x", "CUDA_VISIBLE_DEVICES", _MPI_RANK]
    if engine.family == "vllm" and server.replica.phase is not Phase.BOTH:
        port = SIDE_CHANNEL_PORT + _SIDE_CHANNELS * server.slot
        return ["env", f"VLLM_NIXL_SIDE_CHANNEL_HOST={host}", f"VLLM_NIXL_SIDE_CHANNEL_PORT={port}"]
    return []


_MPI_RANK: Final = "trtllm-llmapi-launch"


def _is_split(servers: Sequence[Server]) -> bool:
    return any(server.replica.phase is Phase.PREFILL for server in servers)


def _front(servers: Sequence[Server]) -> dict[str, object]:
    """Configuration of ``trtllm-serve disaggregated``, which takes requests and hands them from phase to phase."""
    urls = {
        phase: [f"{each.first_host}:{each.http_port}" for each in servers if each.replica.phase is phase]
        for phase in (Phase.PREFILL, Phase.DECODE)
    }
    return {
        "hostname": "0.0.0.0",  # noqa: S104 - a server is for others
        "port": 9000,
        "backend": "pytorch",
        "context_servers": {"num_instances": len(urls[Phase.PREFILL]), "urls": urls[Phase.PREFILL]},
        "generation_servers": {"num_instances": len(urls[Phase.DECODE]), "urls": urls[Phase.DECODE]},
    }
