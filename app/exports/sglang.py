"""SGLang: ``sglang.launch_server`` on every host.

Flags as in ``sglang/srt/server_args.py`` (0.5).  Replicas on several hosts exist there only as data parallel
attention, where ``--tp-size`` counts the GPUs of all replicas of a stage.
"""

from __future__ import annotations

from typing import Final

from app.exports.contract import SHELL, Export, ExportFile, Family, Files
from app.exports.engines import (
    ENGINE_SAYS,
    EngineLaunch,
    check_stages_in_a_row,
    engine_launch,
    needs_server_each,
    partition,
    script,
)
from app.exports.launch_value import Launch
from app.exports.options import Options
from app.exports.readback.engines import read_sglang


def render_sglang(launch: Launch, options: Options) -> Files:
    """One script for all hosts; raises ``InvalidConfiguration`` where SGLang cannot do what the plan says."""
    engine = engine_launch(launch, "SGLang")
    _check_stages(engine)
    command = [
        f"python3 -m sglang.launch_server --model-path {options.model_path}",
        *_degrees(engine),
        f'--nnodes {len(engine.hosts)} --node-rank "$NODE_RANK"',
        f"--dist-init-addr {engine.hosts[0]}:{options.port}",
    ]
    text = script(engine, "sglang.sh", partition(engine, "SGLANG_PP_LAYER_PARTITION"), command)
    return (ExportFile("sglang.sh", text, executable=True),)


def _check_stages(engine: EngineLaunch) -> None:
    """SGLang gives each host whole stages, or each stage whole hosts."""
    hosts, stages = len(engine.hosts), engine.pipeline
    if max(hosts, stages) % min(hosts, stages):
        raise engine.refuse(
            "degrees.pipeline",
            stages,
            f"{stages} stages and {hosts} hosts do not divide",
            "plan with as many stages as hosts, or a multiple",
        )


def _degrees(engine: EngineLaunch) -> list[str]:
    pipeline, data, expert = engine.pipeline, engine.data, engine.expert
    if data > 1 and engine.experts_everywhere:
        check_stages_in_a_row(engine)
        total = engine.tensor * data
        return [
            f"--tp-size {total} --pp-size {pipeline} --dp-size {data} --ep-size {expert}",
            "--enable-dp-attention",
        ]
    if data > 1 and len(engine.hosts) > 1:
        raise needs_server_each(engine, "replicas on several hosts need experts on all GPUs of a stage")
    return [f"--tp-size {engine.tensor} --pp-size {pipeline} --dp-size {data} --ep-size {expert}"]


EXPORTS_HERE: Final = (
    Export(
        "sglang",
        "sglang.sh",
        SHELL,
        "SGLang servers with the degrees of the training plan",
        render_sglang,
        read_sglang,
        ENGINE_SAYS,
        Family.INFERENCE,
    ),
)
