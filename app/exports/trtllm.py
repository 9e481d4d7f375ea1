"""TensorRT-LLM: ``trtllm-serve`` over all hosts by one ``mpirun``.

Flags and keys as in its documentation (1.x).  One server is one replica; data parallel ranks exist only for the
attention of a model with experts (``enable_attention_dp``), where ``--tp_size`` counts them.
"""

from __future__ import annotations

from typing import Final

import yaml

from app.exports.contract import ZIP, Export, ExportFile, Family, Files
from app.exports.engines import (
    ENGINE_SAYS,
    EngineLaunch,
    check_stages_in_a_row,
    engine_launch,
    needs_server_each,
    remarks,
)
from app.exports.launch import render_hostfile
from app.exports.launch_value import Launch
from app.exports.options import Options
from app.exports.readback.engines import read_trtllm


def render_trtllm(launch: Launch, options: Options) -> Files:
    """Script, hostfile and ``config.yaml``; raises ``InvalidConfiguration`` where it cannot do the same."""
    engine = engine_launch(launch, "TensorRT-LLM")
    _check(engine)
    total = engine.tensor * engine.data
    config = {
        "tensor_parallel_size": total,
        "pipeline_parallel_size": engine.pipeline,
        "moe_expert_parallel_size": engine.expert,
        "enable_attention_dp": engine.data > 1,
    }
    if not engine.sparse:
        del config["moe_expert_parallel_size"]
    head = "\n".join(remarks(engine)) + "\n"
    return (
        ExportFile("trtllm.sh", _script(engine, options), executable=True),
        ExportFile("hostfile", render_hostfile(launch)),
        ExportFile("config.yaml", head + yaml.safe_dump(config, sort_keys=False)),
    )


def _script(engine: EngineLaunch, options: Options) -> str:
    world = len(engine.hosts) * engine.gpus_per_host
    expert = [f"    --ep_size {engine.expert} \\"] if engine.sparse else []
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *remarks(engine),
            "# Run on the first host, beside hostfile and config.yaml: bash trtllm.sh [MORE FLAGS]",
            "set -euo pipefail",
            f"exec mpirun -n {world} --hostfile hostfile --map-by slot \\",
            f"    -x CUDA_VISIBLE_DEVICES={','.join(map(str, engine.gpus[0]))} \\",
            f"    trtllm-llmapi-launch trtllm-serve serve {options.model_path} \\",
            f"    --tp_size {engine.tensor * engine.data} --pp_size {engine.pipeline} \\",
            *expert,
            f"    --gpus_per_node {engine.gpus_per_host} --extra_llm_api_options config.yaml \\",
            '    "$@"',
            "",
        ]
    )


def _check(engine: EngineLaunch) -> None:
    if engine.stages:
        raise engine.refuse("stage_layers", engine.stages, "it cuts stages evenly", "plan with even stages")
    if len(set(engine.gpus)) > 1:
        raise engine.refuse("gpus", engine.gpus, "one list of GPUs is given to all hosts", "plan with whole hosts")
    if engine.data > 1 and (engine.tensor > 1 or not engine.experts_everywhere):
        reason = "replicas exist only for attention without tensors cut, with experts on all GPUs of a stage"
        raise needs_server_each(engine, reason)
    check_stages_in_a_row(engine)


EXPORTS_HERE: Final = (
    Export(
        "trtllm",
        "trtllm.zip",
        ZIP,
        "TensorRT-LLM server with the degrees of the training plan",
        render_trtllm,
        read_trtllm,
        ENGINE_SAYS,
        Family.INFERENCE,
    ),
)
