"""vLLM: ``vllm serve`` on every host.

Flags as in ``vllm/engine/arg_utils.py`` (v1, 2026).  Hosts that share one replica are joined by ``--nnodes``;
several replicas fill the hosts one after the other (``--data-parallel-start-rank``).
"""

from __future__ import annotations

from typing import Final

from app.exports.contract import SHELL, Export, ExportFile, Family, Files
from app.exports.engines import (
    ENGINE_SAYS,
    EngineLaunch,
    engine_launch,
    needs_server_each,
    partition,
    script,
)
from app.exports.launch_value import Launch
from app.exports.options import Options
from app.exports.readback.engines import read_vllm

_HEADLESS: Final = '[[ "$NODE_RANK" == 0 ]] || set -- --headless "$@"'


def render_vllm(launch: Launch, options: Options) -> Files:
    """One script for all hosts; raises ``InvalidConfiguration`` where vLLM cannot do what the plan says."""
    engine = engine_launch(launch, "vLLM")
    command = [
        f"vllm serve {options.model_path}",
        f"--tensor-parallel-size {engine.tensor}",
        f"--pipeline-parallel-size {engine.pipeline}",
        *_replicas(engine, options.port),
    ]
    if engine.experts_everywhere:
        command.append("--enable-expert-parallel")
    text = script(engine, "vllm.sh", partition(engine, "VLLM_PP_LAYER_PARTITION"), command)
    return (ExportFile("vllm.sh", text, executable=True),)


def _replicas(engine: EngineLaunch, port: int) -> list[str]:
    """How hosts share the replicas."""
    first = engine.hosts[0]
    if len(engine.hosts) == 1:
        return [f"--data-parallel-size {engine.data}"]
    if engine.data == 1:
        hosts = f'--nnodes {len(engine.hosts)} --node-rank "$NODE_RANK"'
        return [_HEADLESS, hosts, f"--master-addr {first} --master-port {port}"]
    if engine.gpus_per_host % engine.replica:
        raise needs_server_each(
            engine, f"hosts of {engine.gpus_per_host} GPUs hold no whole replicas of {engine.replica} GPUs"
        )
    if not engine.replicas_in_a_row:
        raise needs_server_each(engine, "the rank order spreads each replica over several hosts")
    local = engine.gpus_per_host // engine.replica
    return [
        _HEADLESS,
        f"--data-parallel-size {engine.data} --data-parallel-size-local {local}",
        f'--data-parallel-start-rank "$((NODE_RANK * {local}))"',
        f"--data-parallel-address {first} --data-parallel-rpc-port {port}",
    ]


EXPORTS_HERE: Final = (
    Export(
        "vllm",
        "vllm.sh",
        SHELL,
        "vLLM servers with the degrees of the training plan",
        render_vllm,
        read_vllm,
        ENGINE_SAYS,
        Family.INFERENCE,
    ),
)
