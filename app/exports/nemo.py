"""Overrides for recipes of NeMo's Megatron-Bridge: the same choices as Megatron-LM's flags, by configuration field.

Fields as in ``megatron/bridge/training/config.py`` (``ConfigContainer``, ``CommOverlapConfig``) and
``TransformerConfig`` and ``DistributedDataParallelConfig`` of the Megatron-Core beside it, 0.14 to 0.19.
"""

from __future__ import annotations

from typing import Final

from app.exports.context_exchanges import KIND, NAMES, SIZES, group_sizes
from app.exports.contract import (
    SHELL,
    Export,
    ExportFile,
    Files,
    refuse_gradients,
    refuse_groups,
    refuse_method,
    refuse_schedule,
    unsupported,
)
from app.exports.launch_value import Launch
from app.exports.megatron import documents_unsaid, environment_lines, expert_order_lines, rows_unsaid
from app.exports.megatron_hybrid import is_hybrid, refuse_untold
from app.exports.megatron_layers import pipeline_layout
from app.exports.megatron_releases import NEWEST, SINCE, has, overlaps_experts, release_name, vendors
from app.exports.offloading import LAYERS, offload_settings, refuse_offload
from app.exports.optimizer_states import FIELDS, refuse_optimizer, state_formats
from app.exports.options import Options
from app.exports.power import cap_remarks
from app.exports.readback.nemo import GROUP, NEMO_SAYS, read_nemo
from app.exports.recomputation import recomputation_settings
from cluster_models.cluster.gpus import Precision
from cluster_models.training.adapters import MLP_MODULES
from cluster_models.training.framework_choices import CudaGraphs, ExpertBalance, ExpertDispatch, Float8Scaling
from cluster_models.training.plan import RankOrder
from cluster_models.training.workload import Sharding

_PRECISION: Final = {
    Precision.BF16: "bf16_mixed",
    Precision.FP16: "fp16_mixed",
    Precision.MXFP8: "bf16_with_mxfp8_mixed",
    Precision.NVFP4: "bf16_with_nvfp4_mixed",
    Precision.FP32: "null",
}
_SCALING: Final = {
    Float8Scaling.DELAYED: "bf16_with_fp8_delayed_scaling_mixed",
    Float8Scaling.CURRENT: "bf16_with_fp8_current_scaling_mixed",
    Float8Scaling.BLOCK: "bf16_with_fp8_subchannel_scaling_mixed",
    Float8Scaling.ROW: "bf16_with_fp8_current_scaling_mixed",
}
_FIRST: Final = 14
"""The release of Megatron-Core that the first Megatron-Bridge came with."""
_PINNED: Final = 16
"""Fields of this one are written where a plan was priced for none of them."""
_IMPLEMENTATION: Final = "--cuda-graph-impl"
_MODULES: Final = "--cuda-graph-modules"
_BACKEND: Final = "--moe-flex-dispatcher-backend"
"""Fields came with the arguments of Megatron-LM that have their names."""


def render_nemo(launch: Launch, options: Options) -> Files:  # noqa: ARG001 - the shape of every renderer
    """A bash array of overrides, with the environment that they need.

    Refuses Megatron FSDP with pipeline ranks before data ranks, as Bridge does, and GPUs that are not NVIDIA's.
    """
    refuse_schedule("Megatron-Bridge", launch)
    refuse_method("Megatron-Bridge", launch)
    refuse_groups("Megatron-Bridge", launch, of_states=True)
    refuse_gradients("Megatron-Bridge", launch)
    refuse_optimizer("Megatron-Bridge", launch)
    sharded = launch.configuration.sharding is Sharding.PARAMETERS
    if sharded and launch.configuration.rank_order is RankOrder.PIPELINE_BEFORE_DATA:
        raise unsupported(
            "Megatron-Bridge", "rank_order", "tp-cp-ep-pp-dp", "Megatron FSDP has one rank order, tp-cp-ep-dp-pp"
        )
    if makers := sorted(vendors(launch.plan) - {"NVIDIA"}):
        raise unsupported(
            "Megatron-Bridge",
            "hosts",
            ", ".join(makers),
            "NeMo runs on NVIDIA's GPUs only",
            "export megatron, for a Megatron-LM built for these GPUs",
        )
    lines = [
        '# Overrides for a Megatron-Bridge recipe: python YOUR_RECIPE.py "${NEMO_OVERRIDES[@]}"',
        "# Ranks follow the order of the host list; start with the torchrun or slurm export.",
        "# The dataset's sequence length must be model.seq_length; add tokenizer, data and checkpoint.",
    ]
    lines += [f"# {remark}" for remark in cap_remarks(launch)]
    framework, found = launch.workload.framework, overrides(launch)
    release = _release(launch)
    if framework.megatron_core != release:
        lines.append(
            f"# Priced as {framework.generation}; fields are those of Bridge with {release_name(release)}."
        )
    if framework.gradient_bytes < 4.0:
        lines.append("# The plan counts 16-bit gradients: the precision recipe needs grad_reduce_in_fp32=False.")
    if any(name.startswith("peft.") for name in found):
        lines.append("# The recipe must hold a LoRA as peft, and start from a checkpoint of the frozen weights.")
    if any(name.startswith("comm_overlap.") for name in found):
        lines.append("# The recipe must hold a CommOverlapConfig as comm_overlap.")
    lines += [f"# Priced, and not told to Bridge: {each}." for each in _unsaid(launch, release)]
    lines += [
        *environment_lines(launch),
        "NEMO_OVERRIDES=(",
        *(f"    {_word(*each)}" for each in found.items()),
        ")",
    ]
    return (ExportFile("nemo_overrides.sh", "\n".join([*lines, *expert_order_lines(launch.plan)]) + "\n"),)


def overrides(launch: Launch) -> dict[str, str]:
    """Every override, by dotted field."""
    configuration, workload, degrees = launch.configuration, launch.workload, launch.degrees
    model = launch.architecture
    refuse_untold(model)
    if is_hybrid(model):
        problem = "the stages of hybrid models stand in the pattern of a recipe"
        raise unsupported("Megatron-Bridge's overrides", "model", model.name, problem, "use the megatron export")
    sequence_parallel = degrees.tensor > 1 and workload.framework.sequence_parallel
    found = {
        "model.num_layers": str(model.layers),
        "model.hidden_size": str(model.hidden),
        "model.num_attention_heads": str(model.heads),
        "model.vocab_size": str(model.vocabulary),
        "model.seq_length": str(workload.sequence_length),
        "train.micro_batch_size": str(configuration.micro_batch),
        "train.global_batch_size": str(workload.global_batch),
        "mixed_precision": _PRECISION.get(workload.precision, _SCALING[workload.framework.float8_scaling]),
        "model.tensor_model_parallel_size": str(degrees.tensor),
        "model.pipeline_model_parallel_size": str(degrees.pipeline),
        "model.context_parallel_size": str(degrees.context),
        "model.sequence_parallel": _truth(sequence_parallel),
        "dist.use_tp_pp_dp_mapping": _truth(configuration.rank_order is RankOrder.PIPELINE_BEFORE_DATA),
    }
    if degrees.context > 1:
        found[f"model.{KIND}"] = NAMES[configuration.context_exchange]
    if sizes := group_sizes(configuration):
        found[f"model.{SIZES}"] = f"[{','.join(map(str, sizes))}]"
    if model.mlp_hidden:
        found["model.ffn_hidden_size"] = str(model.mlp_hidden)
    if model.latent_attention is None:
        found |= {"model.num_query_groups": str(model.kv_heads), "model.kv_channels": str(model.head_size)}
    again = recomputation_settings(configuration) or {"granularity": "null"}
    words = {name: value if isinstance(value, str) else f"[{','.join(value)}]" for name, value in again.items()}
    found |= {f"model.recompute_{name}": value for name, value in words.items()}
    found |= _states(launch) | _adapters(launch)
    return found | _pipeline(launch) | _sharding(launch) | _overlaps(launch) | _graphs(launch) | _experts(launch)


def _release(launch: Launch) -> int:
    """The release of Megatron-Core whose fields are written: the framework's own, where Bridge was made for it."""
    core = launch.workload.framework.megatron_core
    return core if _FIRST <= core <= NEWEST else _PINNED


def _states(launch: Launch) -> dict[str, str]:
    """Formats of the optimizer's states; FP32 is said as well, because some recipes have narrow ones."""
    formats = state_formats("Megatron-Bridge", launch) or ("fp32",) * len(FIELDS)
    if "fp8" in formats:
        problem = "it reads fp8 as another type than the one byte of Transformer Engine's Adam"
        raise unsupported("Megatron-Bridge", "optimizer_states", "fp8", problem, "export megatron, or use bf16")
    offloading = {name: value or _truth(True) for name, value in offload_settings(launch).items()}
    if launch.configuration.sharding is not Sharding.OPTIMIZER:
        refuse_offload("Megatron-Bridge", launch, remedy="plan with sharding optimizer")
    aware = launch.workload.optimizer_states.is_narrow or bool(offloading)
    said = {"use_precision_aware_optimizer": _truth(aware)} | dict(zip(FIELDS, formats, strict=True)) | offloading
    waiting = {}
    if layers := launch.configuration.offloaded_layers:
        waiting = {"cpu_offloading": _truth(True), "cpu_offloading_weights": _truth(False), LAYERS: str(layers)}
    found = {f"model.{name}": value for name, value in waiting.items()}
    return found | {f"optimizer.{name}": value for name, value in said.items()}


def _adapters(launch: Launch) -> dict[str, str]:
    """Adapters, by patterns that leave out routed experts."""
    if (adapters := launch.workload.adapters) is None:
        return {}
    mlps = ["mlp", "shared_experts"] if launch.architecture.experts else ["mlp"]
    names = [
        f"*.{block}.{module}"
        for module in adapters.modules
        for block in (mlps if module in MLP_MODULES else ["self_attention"])
    ]
    return {"peft.dim": str(adapters.rank), "peft.dropout": "0.0", "peft.target_modules": f"[{','.join(names)}]"}


def _overlaps(launch: Launch) -> dict[str, str]:
    """Overrides for overlaps and the loss, as priced."""
    workload, degrees = launch.workload, launch.degrees
    framework = workload.framework
    found: dict[str, str] = {}
    chunked = framework.overlap_tensor and framework.sequence_parallel and workload.precision is not Precision.NVFP4
    chosen = launch.configuration.settings
    if degrees.tensor > 1 and (chunked or chosen.overlap_tensor is not None):  # recipes may have it on
        found["comm_overlap.tp_comm_overlap"] = _truth(chunked)
    if framework.defer_head_gradient and degrees.pipeline > 1:
        found["comm_overlap.defer_embedding_wgrad_compute"] = "true"
        found["comm_overlap.wgrad_deferral_limit"] = str(framework.head_gradient_limit)
    beside = launch.architecture.experts is not None and overlaps_experts(launch)
    if beside or chosen.expert_overlap is not None:
        found["comm_overlap.overlap_moe_expert_parallel_comm"] = _truth(beside)
    found["model.cross_entropy_loss_fusion"] = _truth(framework.fused_loss)
    if framework.fused_loss:
        found["model.cross_entropy_fusion_impl"] = "te"
    return found


def _graphs(launch: Launch) -> dict[str, str]:
    """CUDA graphs, in the words of each release."""
    graphs, release = launch.workload.framework.cuda_graphs, _release(launch)
    if not has(release, _IMPLEMENTATION):
        return {}
    if graphs is CudaGraphs.NONE:
        return {"model.cuda_graph_impl": "none"}
    found = {"model.use_te_rng_tracker": "true", "rng.te_rng_tracker": "true"}
    if graphs is CudaGraphs.PARTIAL:
        sparse = launch.architecture.experts is not None
        scope = "[attn,moe_router,moe_preprocess]" if sparse else "[attn]"
        named = "cuda_graph_modules" if has(release, _MODULES) else "cuda_graph_scope"
        return found | {"model.cuda_graph_impl": "transformer_engine", f"model.{named}": scope}
    if has(release, _MODULES):
        found |= {"model.cuda_graph_impl": "full_iteration"}
    else:
        found |= {"model.cuda_graph_impl": "local", "model.cuda_graph_scope": "[full_iteration]"}
    return found | {"rerun_state_machine.check_for_nan_in_loss": "false", "ddp.check_for_nan_in_grad": "false"}


def _unsaid(launch: Launch, release: int) -> list[str]:
    """Priced settings for which Bridge of this release has no field, in words."""
    framework = launch.workload.framework
    found = []
    if framework.cuda_graphs is not CudaGraphs.NONE and not has(release, _IMPLEMENTATION):
        found.append(f"CUDA graphs ({framework.cuda_graphs}), which came with 0.{SINCE[_IMPLEMENTATION]}")
    hybrid = framework.expert_dispatch is ExpertDispatch.HYBRIDEP and launch.architecture.experts is not None
    if hybrid and not has(release, _BACKEND):
        found.append(f"hybridep, which came with 0.{SINCE[_BACKEND]} (deepep stands for it)")
    return [*found, *rows_unsaid(launch.workload), *documents_unsaid(launch.workload)]


def _pipeline(launch: Launch) -> dict[str, str]:
    configuration, virtual = launch.configuration, launch.degrees.virtual_pipeline
    found = {"model.virtual_pipeline_model_parallel_size": str(virtual)} if virtual > 1 else {}
    if virtual > 1 and launch.micro_batch_group != launch.degrees.pipeline:
        found[GROUP] = str(launch.micro_batch_group)
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
    copies = launch.configuration.optimizer_copies(framework.sharding_ranks)
    if sharding is Sharding.OPTIMIZER and copies > 1:
        found["ddp.num_distributed_optimizer_instances"] = str(copies)
    if sharding is Sharding.PARAMETERS:
        found |= {
            "ddp.use_megatron_fsdp": "true",
            "ddp.data_parallel_sharding_strategy": "optim_grads_params",
            "checkpoint.ckpt_format": "fsdp_dtensor",
            "model.gradient_accumulation_fusion": "false",
        }
    return found


def _experts(launch: Launch) -> dict[str, str]:
    experts, workload, degrees = launch.architecture.experts, launch.workload, launch.degrees
    if experts is None:
        return {}
    framework = workload.framework
    grouped = workload.precision not in {Precision.FP16, Precision.FP32}
    found = {
        "num_moe_experts": str(experts.count),
        "moe_router_topk": str(experts.active),
        "moe_ffn_hidden_size": str(experts.hidden),
        "expert_model_parallel_size": str(degrees.expert),
        "expert_tensor_parallel_size": str(degrees.expert_tensor),
        "moe_grouped_gemm": _truth(grouped),
        "moe_permute_fusion": _truth(framework.fused_kernels),
        "moe_router_fusion": _truth(framework.fused_kernels),
        **_dispatch(framework.expert_dispatch, _release(launch)),
    }
    if experts.shared_hidden:
        found["moe_shared_expert_intermediate_size"] = str(experts.shared_hidden)
    if framework.expert_balance is ExpertBalance.FORCED:
        found["moe_router_force_load_balancing"] = "true"
    if framework.expert_balance is ExpertBalance.CAPACITY:
        found |= {"moe_expert_capacity_factor": "1.0", "moe_pad_expert_input_to_capacity": "true"}
    return {f"model.{name}": value for name, value in found.items()}


def _dispatch(dispatch: ExpertDispatch, release: int) -> dict[str, str]:
    if dispatch is ExpertDispatch.ALL_TO_ALL:
        return {"moe_token_dispatcher_type": "alltoall"}
    if not has(release, _BACKEND):
        return {"moe_token_dispatcher_type": "flex", "moe_enable_deepep": "true"}
    return {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": str(dispatch)}


def _word(field: str, value: str) -> str:
    """One word of bash; what Hydra must read as one string keeps its single quotes inside."""
    return f'"{field}={value}"' if set(value) & set("'[") else f"{field}={value}"


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
