"""Overrides for recipes of NeMo's Megatron-Bridge: the same choices as Megatron-LM's flags, by configuration field.

Fields as in ``megatron/bridge/training/config.py`` (``ConfigContainer``) and Megatron-Core 0.16's
``TransformerConfig`` and ``DistributedDataParallelConfig``.
"""

from __future__ import annotations

from typing import Final

from app.exports.contract import SHELL, Export, ExportFile, Files, Options, unsupported
from app.exports.launch_value import Launch
from app.exports.megatron import expert_order_lines, pipeline_layout
from app.exports.readback.nemo import NEMO_SAYS, read_nemo
from cluster_models.frameworks import ExpertDispatch
from cluster_models.gpus import Precision
from cluster_models.plan import RankOrder
from cluster_models.workload import Recompute, Sharding

_PRECISION: Final = {
    Precision.BF16: "bf16_mixed",
    Precision.FP16: "fp16_mixed",
    Precision.FP8: "bf16_with_fp8_delayed_scaling_mixed",
    Precision.MXFP8: "bf16_with_mxfp8_mixed",
    Precision.NVFP4: "bf16_with_nvfp4_mixed",
    Precision.FP32: "null",
}
_RECOMPUTE: Final = {
    Recompute.NONE: {"granularity": "null"},
    Recompute.SELECTIVE: {"granularity": "selective"},
    Recompute.FULL: {"granularity": "full", "method": "uniform", "num_layers": "1"},
}
_DISPATCH: Final = {
    ExpertDispatch.ALL_TO_ALL: {"moe_token_dispatcher_type": "alltoall"},
    ExpertDispatch.DEEPEP: {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep"},
    ExpertDispatch.HYBRIDEP: {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "hybridep"},
}


def render_nemo(launch: Launch, options: Options) -> Files:  # noqa: ARG001 - the shape of every renderer
    """A bash array of overrides; refuses Megatron FSDP with pipeline ranks before data ranks, as Bridge does."""
    sharded = launch.configuration.sharding is Sharding.PARAMETERS
    if sharded and launch.configuration.rank_order is RankOrder.PIPELINE_BEFORE_DATA:
        raise unsupported(
            "Megatron-Bridge", "rank_order", "tp-cp-ep-pp-dp", "Megatron FSDP has one rank order, tp-cp-ep-dp-pp"
        )
    lines = [
        '# Overrides for a Megatron-Bridge recipe: python YOUR_RECIPE.py "${NEMO_OVERRIDES[@]}"',
        "# Ranks follow the order of the host list; start with the torchrun or slurm export.",
        "# The dataset's sequence length must be model.seq_length.",
    ]
    if launch.workload.framework.gradient_bytes < 4.0:
        lines.append("# The plan counts 16-bit gradients: the precision recipe needs grad_reduce_in_fp32=False.")
    lines += ["NEMO_OVERRIDES=(", *(f"    {_word(*each)}" for each in overrides(launch).items()), ")"]
    return (ExportFile("nemo_overrides.sh", "\n".join([*lines, *expert_order_lines(launch.plan)]) + "\n"),)


def overrides(launch: Launch) -> dict[str, str]:
    """Every override, by dotted field."""
    configuration, workload, degrees = launch.configuration, launch.workload, launch.degrees
    sequence_parallel = degrees.tensor > 1 and workload.framework.sequence_parallel
    found = {
        "model.num_layers": str(launch.architecture.layers),
        "model.seq_length": str(workload.sequence_length),
        "train.micro_batch_size": str(configuration.micro_batch),
        "train.global_batch_size": str(workload.global_batch),
        "mixed_precision": _PRECISION[workload.precision],
        "model.tensor_model_parallel_size": str(degrees.tensor),
        "model.pipeline_model_parallel_size": str(degrees.pipeline),
        "model.context_parallel_size": str(degrees.context),
        "model.sequence_parallel": _truth(sequence_parallel),
        "dist.use_tp_pp_dp_mapping": _truth(configuration.rank_order is RankOrder.PIPELINE_BEFORE_DATA),
    }
    found |= {f"model.recompute_{name}": value for name, value in _RECOMPUTE[configuration.recompute].items()}
    return found | _pipeline(launch) | _sharding(launch) | _experts(launch)


def _pipeline(launch: Launch) -> dict[str, str]:
    configuration, virtual = launch.configuration, launch.degrees.virtual_pipeline
    found = {"model.virtual_pipeline_model_parallel_size": str(virtual)} if virtual > 1 else {}
    if len({count for row in configuration.stage_layers for count in row}) > 1:
        layout = pipeline_layout(configuration, launch.architecture.prediction_layers)
        found["model.pipeline_model_parallel_layout"] = f"'{layout}'"
    return found


def _sharding(launch: Launch) -> dict[str, str]:
    framework, sharding = launch.workload.framework, launch.configuration.sharding
    shared = _truth(sharding is not Sharding.NONE)
    found = {
        "ddp.use_distributed_optimizer": shared,
        "optimizer.use_distributed_optimizer": shared,
        "ddp.overlap_grad_reduce": _truth(framework.overlap_gradients),
        "ddp.overlap_param_gather": _truth(framework.overlap_parameters and sharding is not Sharding.NONE),
    }
    if sharding is Sharding.PARAMETERS:
        found |= {
            "ddp.use_megatron_fsdp": "true",
            "ddp.data_parallel_sharding_strategy": "optim_grads_params",
            "checkpoint.ckpt_format": "fsdp_dtensor",
            "model.gradient_accumulation_fusion": "false",
        }
    return found


def _experts(launch: Launch) -> dict[str, str]:
    experts = launch.architecture.experts
    if experts is None:
        return {}
    dispatch = _DISPATCH[launch.workload.framework.expert_dispatch]
    return {
        "model.num_moe_experts": str(experts.count),
        "model.expert_model_parallel_size": str(launch.degrees.expert),
        "model.expert_tensor_parallel_size": str(launch.degrees.expert_tensor),
    } | {f"model.{name}": value for name, value in dispatch.items()}


def _word(field: str, value: str) -> str:
    """One word of bash; what Hydra must read as one string keeps its single quotes inside."""
    return f'"{field}={value}"' if "'" in value else f"{field}={value}"


def _truth(value: bool) -> str:
    return "true" if value else "false"


EXPORTS_HERE: Final = (
    Export(
        "nemo",
        "nemo_overrides.sh",
        SHELL,
        "NeMo Megatron-Bridge overrides as a bash array",
        render_nemo,
        read_nemo,
        NEMO_SAYS,
    ),
)
