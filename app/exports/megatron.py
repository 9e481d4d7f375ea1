"""Megatron-LM arguments of a plan: parallelism, batch, recomputation and sharding.

Flags as in ``megatron/training/arguments.py`` of Megatron-LM (main, 2026); the layout string as in
``megatron/core/transformer/pipeline_parallel_layer_layout.py``.
"""

from __future__ import annotations

from typing import Final

from app.exports.contract import SHELL, Export, ExportFile, Files, Options, expert_order
from app.exports.launch_value import Launch
from app.exports.readback.megatron import MEGATRON_SAYS, read_megatron
from cluster_models.frameworks import AttentionKernels, CudaGraphs, ExpertDispatch, Framework
from cluster_models.gpus import Precision
from cluster_models.plan import Configuration, Plan, RankOrder
from cluster_models.workload import Optimizer, Recompute, Sharding, TrainingWorkload

_PRECISION = {
    Precision.BF16: ["--bf16"],
    Precision.FP16: ["--fp16"],
    Precision.FP8: ["--bf16", "--fp8-format hybrid"],
    Precision.MXFP8: ["--bf16", "--fp8-format e4m3", "--fp8-recipe mxfp8"],
    Precision.NVFP4: ["--bf16", "--fp4-format e2m1", "--fp4-recipe nvfp4"],
    Precision.FP32: [],
}
_RECOMPUTE = {
    Recompute.NONE: [],
    Recompute.SELECTIVE: ["--recompute-granularity selective"],
    Recompute.FULL: [
        "--recompute-granularity full",
        "--recompute-method uniform",
        "--recompute-num-layers 1",
    ],
}
_DISPATCH = {
    ExpertDispatch.ALL_TO_ALL: ["--moe-token-dispatcher-type alltoall"],
    ExpertDispatch.DEEPEP: ["--moe-token-dispatcher-type flex", "--moe-flex-dispatcher-backend deepep"],
    ExpertDispatch.HYBRIDEP: ["--moe-token-dispatcher-type flex", "--moe-flex-dispatcher-backend hybridep"],
}
_SHARDING = {
    Sharding.NONE: [],
    Sharding.OPTIMIZER: ["--use-distributed-optimizer"],
    Sharding.PARAMETERS: [
        "--use-megatron-fsdp",
        "--data-parallel-sharding-strategy optim_grads_params",
        "--use-distributed-optimizer",
        "--no-gradient-accumulation-fusion",
        "--ckpt-format fsdp_dtensor",
    ],
}


def megatron_arguments(launch: Launch) -> list[str]:
    """The arguments, one flag with its value an entry."""
    model, workload = launch.architecture, launch.workload
    configuration, degrees = launch.configuration, launch.degrees
    arguments = [
        f"--num-layers {model.layers}",
        f"--seq-length {workload.sequence_length}",
        f"--micro-batch-size {configuration.micro_batch}",
        f"--global-batch-size {workload.global_batch}",
        *_PRECISION[workload.precision],
        f"--optimizer {'adam' if workload.optimizer is Optimizer.ADAM else 'sgd'}",
        f"--tensor-model-parallel-size {degrees.tensor}",
        f"--pipeline-model-parallel-size {degrees.pipeline}",
        f"--context-parallel-size {degrees.context}",
    ]
    if degrees.tensor > 1 and workload.framework.sequence_parallel:
        arguments.append("--sequence-parallel")
    if workload.framework.gradient_bytes < 4.0:
        arguments.append("--grad-reduce-in-bf16")
    arguments += _overlap_arguments(workload, configuration)
    arguments += _cuda_graph_arguments(workload.framework, sparse=model.experts is not None)
    if model.experts is not None:
        arguments += [
            f"--num-experts {model.experts.count}",
            f"--expert-model-parallel-size {degrees.expert}",
            f"--expert-tensor-parallel-size {degrees.expert_tensor}",
            *_DISPATCH[workload.framework.expert_dispatch],
        ]
        if workload.framework.expert_overlap:
            arguments.append("--overlap-moe-expert-parallel-comm")
    if configuration.rank_order is RankOrder.PIPELINE_BEFORE_DATA:
        arguments.append("--use-tp-pp-dp-mapping")
    if model.prediction_layers:
        arguments.append(f"--mtp-num-layers {model.prediction_layers}")
    arguments += _pipeline_arguments(configuration, model.prediction_layers)
    return arguments + _RECOMPUTE[configuration.recompute] + _SHARDING[configuration.sharding]


def pipeline_layout(configuration: Configuration, prediction_layers: int = 0) -> str:
    """The layout string: E embedding, t decoder layer, L loss, | between stages; virtual stage by stage.

    Multi-token prediction layers (m) stand before the loss.
    """
    counts = [count for row in configuration.stage_layers for count in row]
    stages = ["" if count == 0 else "t" if count == 1 else f"t*{count}" for count in counts]
    stages[0] = "E" + stages[0]
    end = "m" * prediction_layers + "L"
    stages[-1] = f"{stages[-1]},{end}" if stages[-1] else end
    return "|".join(stages)


def render_megatron(launch: Launch) -> str:
    """A bash array to source: parallelism only, the rest of the model stays with its owner."""
    plan = launch.plan
    provenance = plan.provenance
    cluster = f"{_one_line(provenance.cluster_name)}, snapshot {_one_line(provenance.snapshot_id)}"
    lines = [
        f"# Meshwright: {plan.configuration.degrees} for {_one_line(plan.model)} on {cluster}.",
        "# Ranks follow the order of the host list; start with the torchrun or slurm export.",
        "# Add the model's widths, data and learning rate; start with CUDA_DEVICE_MAX_CONNECTIONS=1"
        + (" unset." if plan.configuration.sharding is Sharding.PARAMETERS else "."),
        "MEGATRON_ARGS=(",
        *(f"    {argument}" for argument in megatron_arguments(launch)),
        ")",
    ]
    return "\n".join([*lines, *expert_order_lines(plan)]) + "\n"


def _overlap_arguments(workload: TrainingWorkload, configuration: Configuration) -> list[str]:
    """What the cost model took for granted of the framework and Megatron does only when asked."""
    framework, degrees = workload.framework, configuration.degrees
    arguments = []
    if framework.overlap_gradients:
        arguments.append("--overlap-grad-reduce")
    if framework.overlap_parameters and configuration.sharding is not Sharding.NONE:
        arguments.append("--overlap-param-gather")
    chunked = framework.overlap_tensor and workload.precision is not Precision.NVFP4
    if chunked and degrees.tensor > 1 and framework.sequence_parallel:
        arguments.append("--tp-comm-overlap")
    if framework.defer_head_gradient and degrees.pipeline > 1:
        arguments.append("--defer-embedding-wgrad-compute")
        arguments += [f"--wgrad-deferral-limit {framework.head_gradient_limit}"] * (
            framework.head_gradient_limit > 0
        )
    if framework.fused_loss:
        arguments += ["--cross-entropy-loss-fusion", "--cross-entropy-fusion-impl te"]
    if framework.attention_kernels is AttentionKernels.FLASH_2:
        arguments.append("--attention-backend flash")
    return arguments


def _cuda_graph_arguments(framework: Framework, *, sparse: bool) -> list[str]:
    match framework.cuda_graphs:
        case CudaGraphs.NONE:
            return []
        case CudaGraphs.PARTIAL:
            scope = "attn moe_router moe_preprocess" if sparse else "attn"
            return ["--cuda-graph-impl transformer_engine", f"--cuda-graph-scope {scope}", "--te-rng-tracker"]
        case CudaGraphs.FULL:
            return ["--cuda-graph-impl full_iteration", "--te-rng-tracker", "--no-check-for-nan-in-loss-and-grad"]


def _pipeline_arguments(configuration: Configuration, prediction_layers: int) -> list[str]:
    degrees = configuration.degrees
    counts = {count for row in configuration.stage_layers for count in row}
    if len(counts) > 1:
        return [f'--pipeline-model-parallel-layout "{pipeline_layout(configuration, prediction_layers)}"']
    if degrees.virtual_pipeline > 1:
        return [f"--num-layers-per-virtual-pipeline-stage {counts.pop()}"]
    return []


def expert_order_lines(plan: Plan) -> list[str]:
    """How to permute the experts of a checkpoint where the map is not Megatron's contiguous one."""
    order = expert_order(plan)
    if not order:
        return []
    return [
        "# Experts are not in their natural order: the step time holds for a checkpoint whose router rows, expert",
        "# bias and expert weights are permuted together when it is converted, so that position i of decoder layer",
        "# L (from 0) holds the i-th expert of EXPERT_ORDER[L]. The format experts-megatron has the same as JSON.",
        "EXPERT_ORDER=(",
        *(f'    [{layer}]="{" ".join(map(str, row))}"' for layer, row in order),
        ")",
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _files(launch: Launch, options: Options) -> Files:  # noqa: ARG001 - the shape of every renderer
    return (ExportFile("megatron_args.sh", render_megatron(launch)),)


EXPORTS_HERE: Final = (
    Export(
        "megatron",
        "megatron_args.sh",
        SHELL,
        "Megatron-LM arguments as a bash array",
        _files,
        read_megatron,
        MEGATRON_SAYS,
    ),
)
