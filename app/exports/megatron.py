"""Megatron-LM arguments of a plan: the model, parallelism, batch, recomputation, sharding, and what was priced.

Arguments as in ``megatron/training/arguments.py`` of the release of Megatron-Core that the plan's framework holds
(``megatron_releases``); what a release can only be told by another argument is told by that.
"""

from __future__ import annotations

from typing import Final

from app.exports import megatron_flags
from app.exports.claims import expert_order
from app.exports.context_exchanges import NAMES, group_sizes
from app.exports.contract import (
    SHELL,
    Export,
    ExportFile,
    Files,
    refuse_adapters,
    refuse_gradients,
    refuse_groups,
    refuse_method,
    refuse_schedule,
)
from app.exports.launch_value import Launch
from app.exports.megatron_experts import dispatch_unsaid, group_flags
from app.exports.megatron_flags import Arguments, Flag
from app.exports.megatron_hybrid import is_hybrid, pattern_flags
from app.exports.megatron_layers import layer_flags
from app.exports.megatron_model import beside_the_model, expert_flags, model_flags
from app.exports.megatron_releases import (
    Connections,
    connections,
    has,
    release_name,
    release_of,
    starts_megatron,
)
from app.exports.offloading import offload_settings, refuse_offload
from app.exports.optimizer_states import FIELDS, refuse_optimizer, state_formats
from app.exports.options import Options
from app.exports.power import cap_remarks
from app.exports.readback.megatron import GROUP, MEGATRON_SAYS, read_megatron
from app.exports.recomputation import recomputation_settings
from cluster_models.cluster.gpus import Precision
from cluster_models.training.framework_choices import (
    AttentionKernels,
    ContextExchange,
    CudaGraphs,
    Float8Scaling,
    Optimizer,
)
from cluster_models.training.packing import in_words
from cluster_models.training.plan import Configuration, Plan, RankOrder
from cluster_models.training.workload import Sharding, TrainingWorkload

_SCALING: Final = {
    Float8Scaling.DELAYED: (),
    Float8Scaling.CURRENT: (Flag("--fp8-recipe", "tensorwise", priced="one current scale for each FP8 tensor"),),
    Float8Scaling.BLOCK: (Flag("--fp8-recipe", "blockwise", priced="one scale for each block of an FP8 tensor"),),
    Float8Scaling.ROW: (),
}
"""Delayed scaling is the default."""
_PRECISION: Final = {
    Precision.BF16: (Flag("--bf16"),),
    Precision.FP16: (Flag("--fp16"),),
    Precision.FP8: (Flag("--bf16"), Flag("--fp8-format", "hybrid")),
    Precision.MXFP8: (Flag("--bf16"), Flag("--fp8-format", "e4m3"), Flag("--fp8-recipe", "mxfp8")),
    Precision.NVFP4: (Flag("--bf16"), Flag("--fp4-format", "e2m1"), Flag("--fp4-recipe", "nvfp4")),
    Precision.FP32: (),
}
_MATRICES_SINCE: Final = 18
_GRAPHS_SINCE: Final = {CudaGraphs.PARTIAL: 12, CudaGraphs.FULL: 14}
_SCOPES_SINCE: Final = 16
"""A list of what to capture instead of one word."""


def megatron_arguments(launch: Launch) -> Arguments:
    """The arguments for the release that the plan's framework holds.

    Raises ``InvalidConfiguration`` where that release has no option for what the plan does.
    """
    model, workload = launch.architecture, launch.workload
    configuration, degrees = launch.configuration, launch.degrees
    release = release_of(workload.framework)
    refuse_schedule(release_name(release), launch)
    refuse_method(release_name(release), launch)
    refuse_adapters(release_name(release), launch)
    refuse_groups(release_name(release), launch, of_states=True)
    refuse_gradients(release_name(release), launch)
    refuse_optimizer(
        release_name(release), launch, takes=set(Optimizer) if release >= _MATRICES_SINCE else {Optimizer.SGD}
    )
    flags = [
        *model_flags(model, workload, release),
        Flag("--micro-batch-size", configuration.micro_batch),
        Flag("--global-batch-size", workload.global_batch),
        *_PRECISION[workload.precision],
        *(_SCALING[workload.framework.float8_scaling] if workload.precision is Precision.FP8 else ()),
        Flag("--optimizer", str(workload.optimizer)),
        Flag("--tensor-model-parallel-size", degrees.tensor),
        Flag("--pipeline-model-parallel-size", degrees.pipeline),
        Flag("--context-parallel-size", degrees.context),
        *_exchange(configuration),
        *_overlaps(launch, release),
    ]
    if model.experts is not None:
        flags += [*expert_flags(model.experts, model, release), *group_flags(launch, release)]
    flags += [Flag("--use-tp-pp-dp-mapping")] * (configuration.rank_order is RankOrder.PIPELINE_BEFORE_DATA)
    if is_hybrid(model):
        flags += pattern_flags(model, configuration, release)
    else:
        flags += layer_flags(configuration, model.prediction_layers, workload.framework, release)
    if degrees.virtual_pipeline > 1 and launch.micro_batch_group != degrees.pipeline:
        flags.append(Flag(GROUP, launch.micro_batch_group))
    flags += [*_recomputation(launch), *_sharding(launch, release), *_states(release, launch)]
    found = megatron_flags.arguments(flags, release)
    unsaid = _graphs_unsaid(launch, release) + dispatch_unsaid(launch, release) + rows_unsaid(workload)
    return Arguments(found.flags, found.unsaid + unsaid + documents_unsaid(workload))


def rows_unsaid(workload: TrainingWorkload) -> tuple[str, ...]:
    """Features that Transformer Engine lacks: scales of rows, which torchao has."""
    by_row = workload.precision is Precision.FP8 and workload.framework.float8_scaling is Float8Scaling.ROW
    return ("one scale for each row of an FP8 operand",) if by_row else ()


def documents_unsaid(workload: TrainingWorkload) -> tuple[str, ...]:
    """How documents fill the sequences: the dataset's own settings say so, whatever the framework."""
    if (lengths := workload.lengths) is None:
        return ()
    return (f"{in_words(lengths, workload.sequence_length)}, attending to itself alone",)


def remarks(launch: Launch, arguments: Arguments) -> list[str]:
    """Remarks beside the arguments: the release, priced settings that it lacks, what the owner adds."""
    framework = launch.workload.framework
    release = release_name(release_of(framework))
    added = ", ".join(("data", "tokenizer", "learning rate", *beside_the_model(launch.architecture)))
    lines = [f"Arguments of {release}. Add {added}."]
    if not starts_megatron(launch.plan):
        lines = [f"Priced as {framework.generation}: under {release} a step takes another time.", *lines]
    return lines + [f"Priced, and not told to {release}: {each}." for each in arguments.unsaid]


def render_megatron(launch: Launch) -> str:
    """A bash array to source, with the environment that the arguments need."""
    plan = launch.plan
    provenance = plan.provenance
    cluster = f"{_one_line(provenance.cluster_name)}, snapshot {_one_line(provenance.snapshot_id)}"
    said = megatron_arguments(launch)
    lines = [
        f"# Meshwright: {plan.configuration.degrees} for {_one_line(plan.model)} on {cluster}.",
        "# Ranks follow the order of the host list; start with the torchrun or slurm export.",
        *(f"# {remark}" for remark in (*cap_remarks(launch), *remarks(launch, said))),
        *environment_lines(launch),
        *array_lines(said),
    ]
    return "\n".join([*lines, *expert_order_lines(plan)]) + "\n"


def array_lines(arguments: Arguments) -> list[str]:
    """The arguments as a bash array."""
    return ["MEGATRON_ARGS=(", *(f"    {flag}" for flag in arguments.flags), ")"]


def environment_lines(launch: Launch) -> list[str]:
    """Shell lines that set the environment before the framework starts."""
    match connections(launch):
        case Connections(None):
            return ["unset CUDA_DEVICE_MAX_CONNECTIONS  # Megatron's FSDP refuses a single one"]
        case Connections(count):
            return [f"export CUDA_DEVICE_MAX_CONNECTIONS={count}"]
        case _:
            return []


def _exchange(configuration: Configuration) -> list[Flag]:
    """Flags of how context ranks exchange, where that is not a ring."""
    exchange = configuration.context_exchange
    if exchange is ContextExchange.RING:
        return []
    flags = [Flag("--cp-comm-type", NAMES[exchange])]
    sizes = " ".join(map(str, group_sizes(configuration)))
    return flags + [Flag("--hierarchical-context-parallel-sizes", sizes)] * bool(sizes)


def _overlaps(launch: Launch, release: int) -> list[Flag]:
    """Flags of features that the cost model takes for granted and Megatron has only on request."""
    workload, configuration, degrees = launch.workload, launch.configuration, launch.degrees
    framework = workload.framework
    sequence = degrees.tensor > 1 and framework.sequence_parallel
    flags = [Flag("--sequence-parallel")] * sequence
    if framework.gradient_bytes < 4.0:
        flags.append(Flag("--grad-reduce-in-bf16", priced="gradients reduced in 16 bits"))
    flags += [Flag("--overlap-grad-reduce")] * framework.overlap_gradients
    sharded = configuration.sharding is not Sharding.NONE
    flags += [Flag("--overlap-param-gather")] * (framework.overlap_parameters and sharded)
    chunked = framework.overlap_tensor and workload.precision is not Precision.NVFP4
    flags += [Flag("--tp-comm-overlap")] * (chunked and sequence)
    if framework.defer_head_gradient and degrees.pipeline > 1:
        flags.append(Flag("--defer-embedding-wgrad-compute"))
        limit = framework.head_gradient_limit
        flags += [Flag("--wgrad-deferral-limit", limit)] * (limit > 0)
    if framework.fused_loss:
        flags.append(Flag("--cross-entropy-loss-fusion"))
        flags.append(Flag("--cross-entropy-fusion-impl", "te", priced="Transformer Engine's loss in one kernel"))
    if framework.attention_kernels is AttentionKernels.FLASH_2:
        backend = has(release, "--attention-backend")
        flags.append(Flag("--attention-backend", "flash") if backend else Flag("--use-flash-attn"))
    return flags + _graphs(launch, release)


def _graphs(launch: Launch, release: int) -> list[Flag]:
    """Flags of CUDA graphs, in the words of each release."""
    graphs, sparse = launch.workload.framework.cuda_graphs, launch.architecture.experts is not None
    if graphs is CudaGraphs.NONE or release < _GRAPHS_SINCE[graphs]:
        return []
    implementations = has(release, "--cuda-graph-impl")
    if graphs is CudaGraphs.PARTIAL:
        flags = [
            Flag("--cuda-graph-impl", "transformer_engine") if implementations else Flag("--external-cuda-graph")
        ]
        scope = "attn moe_router moe_preprocess" if sparse and release >= _SCOPES_SINCE else "attn"
        modules = "--cuda-graph-modules"
        named = modules if has(release, modules) else "--cuda-graph-scope"
        return [*flags, Flag(named, scope), Flag("--te-rng-tracker")]
    if has(release, "--cuda-graph-modules"):
        flags = [Flag("--cuda-graph-impl", "full_iteration")]
    else:
        flags = [Flag("--cuda-graph-impl", "local") if implementations else Flag("--enable-cuda-graph")]
        flags.append(Flag("--cuda-graph-scope", "full_iteration"))
    return [*flags, Flag("--te-rng-tracker"), Flag("--no-check-for-nan-in-loss-and-grad")]


def _graphs_unsaid(launch: Launch, release: int) -> tuple[str, ...]:
    graphs, sparse = launch.workload.framework.cuda_graphs, launch.architecture.experts is not None
    if graphs is CudaGraphs.NONE:
        return ()
    if release < _GRAPHS_SINCE[graphs]:
        return (f"CUDA graphs ({graphs}), which came with 0.{_GRAPHS_SINCE[graphs]}",)
    if graphs is CudaGraphs.PARTIAL and sparse and release < _SCOPES_SINCE:
        return (f"CUDA graphs of the router, which came with 0.{_SCOPES_SINCE}",)
    return ()


def _recomputation(launch: Launch) -> list[Flag]:
    """Flags of what runs again; several modules follow one flag."""
    said = recomputation_settings(launch.configuration)
    words = {name: value if isinstance(value, str) else " ".join(value) for name, value in said.items()}
    return [Flag(f"--recompute-{name.replace('_', '-')}", value) for name, value in words.items()]


def _states(release: int, launch: Launch) -> list[Flag]:
    """Formats of the optimizer's states, where they are not all FP32, and what is offloaded."""
    formats = state_formats(release_name(release), launch)
    offloading = offload_settings(launch)
    if offloading and launch.configuration.sharding is not Sharding.OPTIMIZER:
        refuse_offload(release_name(release), launch, remedy="plan with sharding optimizer")
    settings = dict(zip(FIELDS[: len(formats)], formats, strict=True)) | offloading
    said = [Flag(f"--{name.replace('_', '-')}", value) for name, value in settings.items()]
    layers = launch.configuration.offloaded_layers
    waiting = [Flag("--cpu-offloading-num-layers", layers)] * (layers > 0)
    return [*waiting, *([Flag("--use-precision-aware-optimizer"), *said] if said else [])]


def _sharding(launch: Launch, release: int) -> list[Flag]:
    sharding = launch.configuration.sharding
    if sharding is Sharding.NONE:
        return []
    if sharding is Sharding.OPTIMIZER:
        return [Flag("--use-distributed-optimizer"), *_instances(launch)]
    named = has(release, "--use-megatron-fsdp")
    return [
        Flag("--use-megatron-fsdp" if named else "--use-custom-fsdp"),
        Flag("--data-parallel-sharding-strategy", "optim_grads_params"),
        Flag("--use-distributed-optimizer"),
        Flag("--no-gradient-accumulation-fusion"),
        *([Flag("--ckpt-format", "fsdp_dtensor")] if named else []),
    ]


def _instances(launch: Launch) -> list[Flag]:
    """Copies of the optimizer's states, where a framework shares them out among a part of the data ranks only."""
    copies = launch.configuration.optimizer_copies(launch.workload.framework.sharding_ranks)
    said = [Flag("--num-distributed-optimizer-instances", copies, priced="copies of the optimizer's states")]
    return said * (copies > 1)


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
