"""DeepSpeed: its JSON, host list and start script.

Keys as in ``deepspeed/runtime`` 0.19 (``config.py``, ``zero/config.py``, ``tensor_parallel/config.py``), launcher
options as in ``deepspeed/launcher/runner.py``, which keeps the order of the host list and of the GPUs named.
"""

from __future__ import annotations

import json
import shlex
from typing import Any, Final

from app.exports.claims import shards_gradients
from app.exports.contract import ZIP, Export, ExportFile, Files, refuse_groups, refuse_method, unsupported
from app.exports.launch_value import Launch
from app.exports.megatron import documents_unsaid
from app.exports.offloading import refuse_layers, refuse_offload
from app.exports.optimizer_states import refuse_optimizer
from app.exports.options import Options
from app.exports.power import cap_remarks
from app.exports.readback.deepspeed import DEEPSPEED_SAYS, read_deepspeed
from cluster_models.cluster.gpus import Precision
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.workload import Recompute, Sharding

NVME: Final = "/local_nvme"
"""Path of the nodes' disks in DeepSpeed's documentation."""
_STAGE: Final = {Sharding.NONE: 0, Sharding.OPTIMIZER: 1, Sharding.GRADIENTS: 2, Sharding.PARAMETERS: 3}


def render_deepspeed(launch: Launch, options: Options) -> Files:
    """``ds_config.json``, ``hostfile`` and ``deepspeed.sh``; refuses what DeepSpeed's configuration cannot say."""
    _refuse(launch)
    slots = "".join(f"{host} slots={max(gpus) + 1}\n" for host, gpus in zip(launch.hosts, launch.gpus, strict=True))
    return (
        ExportFile("ds_config.json", json.dumps(_settings(launch), indent=2) + "\n"),
        ExportFile("hostfile", slots),
        ExportFile("deepspeed.sh", _script(launch, options), executable=True),
    )


def _refuse(launch: Launch) -> None:
    if launch.workload.method.is_policy:
        refuse_method("DeepSpeed", launch)
    refuse_groups("DeepSpeed", launch)
    refuse_optimizer("DeepSpeed", launch)
    refuse_offload("DeepSpeed", launch, takes=True, stage_three=True)
    refuse_layers("DeepSpeed", launch)
    degrees = launch.degrees
    reasons = {
        "pipeline": "it takes pipeline stages from the model's own code (PipelineModule)",
        "context": "it splits sequences by its own scheme (Ulysses), which is not planned here",
        "expert": "it takes expert groups from the model's own code",
        "expert_tensor": "it takes the cut of experts from the model's own code",
    }
    for degree, reason in reasons.items():
        if getattr(degrees, degree) > 1:
            raise unsupported(
                "DeepSpeed",
                f"degrees.{degree}",
                getattr(degrees, degree),
                reason,
                f"plan with {degree} pinned to 1, or export megatron",
            )
    precision = launch.workload.precision
    if precision not in {Precision.BF16, Precision.FP16, Precision.FP32}:
        raise unsupported(
            "DeepSpeed",
            "precision",
            str(precision),
            "its configuration knows fp32, fp16 and bf16",
            "plan with bf16",
        )


def _settings(launch: Launch) -> dict[str, Any]:
    configuration, workload = launch.configuration, launch.workload
    settings: dict[str, Any] = {
        "train_batch_size": workload.global_batch,
        "train_micro_batch_size_per_gpu": configuration.micro_batch,
        "gradient_accumulation_steps": launch.micro_batches,
        "zero_optimization": {
            "stage": 2 if shards_gradients(configuration.sharding, workload) else _STAGE[configuration.sharding],
            "overlap_comm": workload.framework.overlap_gradients,
        },
        "bf16": {"enabled": workload.precision is Precision.BF16},
        "fp16": {"enabled": workload.precision is Precision.FP16},
    }
    if configuration.sharding is Sharding.PARAMETERS:
        exchange = workload.framework.sharded_exchange
        named = {"zero_quantized_weights": exchange.of_weights, "zero_quantized_gradients": exchange.of_gradients}
        settings["zero_optimization"] |= {name: True for name, is_on in named.items() if is_on}
    if configuration.optimizer_offload:
        home = {"device": "nvme", "nvme_path": NVME} if configuration.offload_to_disks else {"device": "cpu"}
        settings["zero_optimization"]["offload_optimizer"] = home | {"pin_memory": True}
        if configuration.offload_parameters:
            settings["zero_optimization"]["offload_param"] = home | {"pin_memory": True}
    if launch.degrees.tensor > 1:
        settings["tensor_parallel"] = {"autotp_size": launch.degrees.tensor}
    return settings


def _script(launch: Launch, options: Options) -> str:
    include = "@".join(f"{host}:{gpus}" for host, gpus in zip(launch.hosts, launch.gpu_lists, strict=True))
    recompute, states = launch.configuration.recomputation, launch.workload.optimizer_states
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"# Run on {launch.hosts[0]}: bash deepspeed.sh ARGUMENTS",
            *(f"# {remark}" for remark in cap_remarks(launch)),
            *(
                [f"# The plan recomputes activations ({recompute}): switch it on in the model's own code."]
                if recompute != Recompute.NONE
                else []
            ),
            *_method_lines(launch),
            *(
                [f"# The plan runs layers by chunks of {chunk} tokens: wrap the model in StreamBP's StreamModel."]
                if (chunk := launch.workload.framework.stream_tokens)
                else []
            ),
            *(
                [f"# The plan trains adapters ({adapters.words}): the script must add them to a frozen model."]
                if (adapters := launch.workload.adapters)
                else []
            ),
            *(
                [f"# The plan counts optimizer states of {states.words}: build such an optimizer."]
                if states.is_narrow
                else []
            ),
            *(
                [f"# Optimizer states go to {NVME} (nvme_path): name the nodes' own disks there."]
                if launch.configuration.offload_to_disks
                else []
            ),
            *(f"# Told by the dataset: {each}." for each in documents_unsaid(launch.workload)),
            "set -euo pipefail",
            'here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"',
            'exec deepspeed --hostfile "$here/hostfile" \\',
            f"    --include {include} \\",
            f"    --master_addr {launch.hosts[0]} --master_port {options.port} \\",
            f'    {shlex.join(options.command)} --deepspeed_config "$here/ds_config.json" "$@"',
            "",
        ]
    )


def _method_lines(launch: Launch) -> list[str]:
    method = launch.workload.method
    if method is TrainingMethod.LIKELIHOOD:
        return []
    reference = "a reference model beside the trained one" if method.has_reference else "no reference model"
    return [f"# The plan trains on pairs of sequences ({method}) with {reference}: the script's trainer does so."]


EXPORTS_HERE: Final = (
    Export(
        "deepspeed",
        "deepspeed.zip",
        ZIP,
        "DeepSpeed configuration, host list and start script",
        render_deepspeed,
        read_deepspeed,
        DEEPSPEED_SAYS,
    ),
)
