"""Legality of a configuration: what the framework, the model and the workload allow.

The rules are Megatron-Core's own refusals (``megatron/core/transformer/transformer_config.py`` and
``megatron/core/parallel_state.py``), restated as arithmetic on degrees.
"""

from __future__ import annotations

from collections.abc import Iterator

from cluster_models.model.architecture import Architecture
from cluster_models.training.frameworks import Framework
from cluster_models.training.interleaving import SIZED_SINCE, Interleaving
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import TrainingWorkload
from solver.check.groups import group_rules
from solver.check.offload import offload_rules
from solver.problem import PlanningProblem


def configuration_violations(configuration: Configuration, problem: PlanningProblem) -> Iterator[str]:
    """Rules on degrees, batch and limits that ``configuration`` breaks."""
    yield from _setting_rules(configuration, problem)
    problem = problem.under(configuration.settings)
    yield from _model_rules(configuration, problem.architecture, problem.workload.framework)
    yield from _expert_rules(configuration, problem)
    yield from _sequence_rules(configuration, problem.workload)
    yield from _exchange_rules(configuration, problem)
    yield from _batch_rules(configuration, problem.workload)
    yield from _order_rules(configuration, problem.architecture)
    yield from _recompute_rules(configuration, problem)
    yield from _limits(configuration, problem)


def layer_violations(configuration: Configuration, problem: PlanningProblem) -> Iterator[str]:
    """Whether ``stage_layers`` has one row a virtual stage, one column a pipeline rank, and every layer."""
    degrees, rows = configuration.degrees, configuration.stage_layers
    if len(rows) != degrees.virtual_pipeline:
        yield f"stage_layers has {len(rows)} rows for virtual pipeline degree {degrees.virtual_pipeline}."
    for index, row in enumerate(rows):
        if len(row) != degrees.pipeline:
            yield f"stage_layers row {index} has {len(row)} stages for pipeline degree {degrees.pipeline}."
        if any(count < 0 for count in row):
            yield f"stage_layers row {index} has a negative number of layers: {row}."
    total = sum(map(sum, rows))
    if total != problem.architecture.layers:
        yield f"The stages hold {total} layers but the model has {problem.architecture.layers}."
    elif problem.workload.framework.fills_stages and len(rows) == 1:
        yield from _filling_rules(rows[0], problem)


def _filling_rules(counts: tuple[int, ...], problem: PlanningProblem) -> Iterator[str]:
    """Every stage but the last that has layers is full, and was not before its own last layer (nanotron).

    Full is what holds, with all stages before, more than their shares of the parameters of layers and head.
    """
    model, name = problem.architecture, problem.workload.framework.name
    layer = model.attention_parameters() + model.dense_mlp_parameters()
    share = (layer * model.layers + model.vocabulary * model.hidden) / max(1, len(counts))
    held = 0
    for stage, count in enumerate(counts):
        full = share * (stage + 1)
        held += count
        if held < model.layers and (count == 0 or layer * held <= full):
            yield f"Stage {stage} has {count} layers, but {name} would give it more before it goes on."
        if count > 1 and layer * (held - 1) > full:
            yield f"Stage {stage} has {count} layers, but {name} goes on to the next one before."


def _model_rules(configuration: Configuration, model: Architecture, framework: Framework) -> Iterator[str]:
    degrees = configuration.degrees
    tensor = degrees.tensor
    for attending in dict.fromkeys(kind.mixer for kind in model.layer_pattern if kind.attends):
        own = model.of_mixer(attending)
        if own.heads % tensor:
            yield f"Tensor degree {tensor} does not divide the {own.heads} attention heads."
        # Key/value heads are replicated when there are fewer of them than tensor ranks.
        if model.latent_attention is None and own.kv_heads % tensor and tensor % own.kv_heads:
            yield f"Tensor degree {tensor} is neither a multiple nor a divisor of {own.kv_heads} kv heads."
    shared = []
    if (linear := model.linear_attention) is not None:
        shared.append((linear.key_heads, "heads of linear attention"))
    if (space := model.state_space) is not None:
        shared.append((space.heads, "heads of the state space"))
        if not space.step_rank and space.groups % tensor:
            yield f"Tensor degree {tensor} does not divide the {space.groups} groups of the state space."
    ranks = tensor * degrees.context
    for heads, name in shared:
        if heads % ranks:
            yield f"Tensor x context degree {ranks} does not divide the {heads} {name}."
    lacking = sorted(model.parts - {*framework.model_parts})
    if lacking:
        yield f"{framework.name} trains no {', '.join(lacking).replace('_', ' ')}, which {model.name} has."


def _expert_rules(configuration: Configuration, problem: PlanningProblem) -> Iterator[str]:
    """Experts and their width divide, and their grid fills a stage evenly (``initialize_model_parallel``)."""
    degrees, model, framework = configuration.degrees, problem.architecture, problem.workload.framework
    expert, cut = degrees.expert, degrees.expert_tensor
    if model.experts is None:
        if expert > 1:
            yield f"Expert degree {expert} is set but the model {model.name} has no experts."
        if cut > 1:
            yield f"Expert tensor degree {cut} is set but the model {model.name} has no experts."
        return
    if model.experts.count % expert:
        yield f"Expert degree {expert} does not divide the {model.experts.count} experts."
    fold = degrees.tensor * degrees.context * degrees.data
    if fold % expert:
        yield f"Expert degree {expert} does not divide tensor x context x data = {fold}."
    elif fold % (expert * cut):
        yield f"Expert {expert} x expert tensor {cut} does not divide tensor x context x data = {fold}."
    if model.experts.hidden % cut:
        yield f"Expert tensor degree {cut} does not divide the width {model.experts.hidden} of an expert."
    if cut > 1 and model.mlp_bias:
        yield f"Expert tensor degree {cut} is set but the experts of {model.name} have biases."
    if cut > 1 and not (framework.expert_tensor and framework.sequence_parallel):
        yield f"Expert tensor degree {cut} is set but {framework.name} does not cut experts on their own."


def _sequence_rules(configuration: Configuration, workload: TrainingWorkload) -> Iterator[str]:
    degrees, length = configuration.degrees, workload.sequence_length
    # Context ranks hold a chunk of the head and one of the tail of the sequence to even out causal attention.
    if degrees.context > 1 and length % (2 * degrees.context):
        yield f"Sequence length {length} is not divisible by 2 x context degree {degrees.context}."
    if length % (degrees.tensor * degrees.context):
        yield (
            f"Sequence length {length} is not divisible by tensor {degrees.tensor} x context "
            f"{degrees.context}, which sequence parallelism needs."
        )


def _exchange_rules(configuration: Configuration, problem: PlanningProblem) -> Iterator[str]:
    """Context ranks exchange as Transformer Engine can, and share out the heads that they exchange."""
    degrees, model, workload = configuration.degrees, problem.architecture, problem.workload
    exchange, framework = str(configuration.context_exchange), workload.framework
    if degrees.context == 1:
        return
    if exchange not in map(str, workload.context_exchange):
        yield f"Context exchange '{exchange}' is not among {_listed(workload.context_exchange)}."
    if exchange not in map(str, framework.context_exchanges):
        yield f"{framework.name} has no {exchange} exchange of context ranks."
    ranks = {"all_to_all": degrees.context, "hierarchical": configuration.head_ranks}.get(exchange, 1)
    for attending in dict.fromkeys(kind.mixer for kind in model.layer_pattern if kind.attends and ranks > 1):
        own = model.of_mixer(attending)
        for heads in {own.heads, own.heads if model.latent_attention is not None else own.kv_heads}:
            if heads % (degrees.tensor * ranks):
                yield f"Tensor {degrees.tensor} x {ranks} ranks that exchange heads does not divide {heads} heads."
    if not framework.megatron_core:
        return
    windows = any(str(kind.mixer) == "window" for kind in model.layer_pattern)
    packed = workload.lengths is not None and workload.lengths.packing.joins
    broken = {
        "windows": windows and exchange in ("ring", "hierarchical"),
        "sinks": model.attention_sinks and exchange != "all_to_all",
        "latent attention": model.latent_attention is not None and exchange in ("gather", "all_to_all"),
        "an indexer": model.sparse_attention is not None and exchange != "ring",
        "packed documents": packed and exchange != "ring",
    }
    yield from (
        f"Context exchange '{exchange}' does not go with {name}." for name, holds in broken.items() if holds
    )


def _batch_rules(configuration: Configuration, workload: TrainingWorkload) -> Iterator[str]:
    degrees, micro_batch = configuration.degrees, configuration.micro_batch
    if micro_batch < 1:
        yield f"The micro-batch is {micro_batch} sequences but must be at least 1."
        return
    if workload.global_batch % (micro_batch * degrees.data):
        yield (
            f"Global batch {workload.global_batch} is not divisible by micro-batch {micro_batch} x data "
            f"degree {degrees.data}."
        )
    if micro_batch > 1 and workload.framework.megatron_core and workload.lengths and workload.lengths.packing.joins:
        yield f"{workload.framework.name} takes one packed sequence a micro-batch, got {micro_batch}."
    if workload.adapters is not None and workload.adapters.rank % degrees.tensor:
        yield f"Adapters of rank {workload.adapters.rank} cannot be cut by {degrees.tensor} tensor ranks."
    if workload.adapters is not None and str(configuration.schedule) in ("zero_bubble", "zb_v", "dualpipe_v"):
        yield f"Schedule {configuration.schedule} splits backward passes, but frozen weights have no gradients."
    if micro_batch % 2 and workload.method.is_paired:
        yield f"The micro-batch is {micro_batch} sequences, which do not make pairs."
    micro_batches = configuration.micro_batches(workload.global_batch)
    fewest = workload.framework.fewest_micro_batches(degrees.pipeline)
    if micro_batches < fewest:
        yield (
            f"{workload.framework.name} needs at least {fewest} micro-batches for {degrees.pipeline} pipeline "
            f"stages, got {micro_batches}."
        )
    virtual, framework = degrees.virtual_pipeline, workload.framework
    if virtual > 1 and framework.interleaving is Interleaving.NONE:
        yield f"Virtual pipeline degree {virtual} is set but {framework.name} has no interleaving."
    elif virtual > 1 and degrees.pipeline == 1:
        yield f"Virtual pipeline degree {virtual} needs a pipeline degree above 1."
    else:
        yield from _schedule_rules(configuration, micro_batches, framework)


def _schedule_rules(configuration: Configuration, micro_batches: int, framework: Framework) -> Iterator[str]:
    """Each schedule's own refusals, by PyTorch's and Megatron-Core's code."""
    degrees, schedule = configuration.degrees, configuration.schedule
    pipeline, virtual = degrees.pipeline, degrees.virtual_pipeline
    in_turn, torch = PipelineSchedule.ONE_F_ONE_B, framework.interleaving is Interleaving.PYTORCH
    if pipeline == 1 and schedule is not in_turn:
        yield f"Schedule {schedule} is set without a pipeline."
    elif schedule not in framework.schedules and pipeline > 1:
        yield f"Schedule {schedule} is set but {framework.name} does not have it."
    elif schedule in (in_turn, PipelineSchedule.ZERO_BUBBLE) and virtual > 1:
        yield from _interleaving_rules(degrees, micro_batches, framework)
    elif schedule is in_turn and torch and micro_batches < pipeline:
        yield f"Schedule {schedule} needs as many micro-batches as stages, {pipeline}, got {micro_batches}."
    elif schedule is PipelineSchedule.ZERO_BUBBLE and torch:
        yield f"Schedule {schedule} needs several virtual stages on a rank (torchtitan)."
    elif schedule in (PipelineSchedule.ZB_V, PipelineSchedule.DUALPIPE_V):
        if virtual != 2:
            yield f"Schedule {schedule} needs two virtual stages on a rank, got {virtual}."
        if schedule is PipelineSchedule.DUALPIPE_V and micro_batches < 2 * pipeline:
            yield f"Schedule {schedule} needs at least {2 * pipeline} micro-batches, got {micro_batches}."


def _interleaving_rules(degrees: Degrees, micro_batches: int, framework: Framework) -> Iterator[str]:
    """Interleaved micro-batches pass in groups of at least as many as there are ranks.

    Megatron-Core takes a single group of them all from 0.10 on, whatever else it takes; PyTorch makes as many
    groups as ranks would fill and wants them equal.
    """
    pipeline = degrees.pipeline
    if micro_batches < pipeline:
        yield (
            f"Interleaving needs at least as many micro-batches as pipeline ranks, but {micro_batches} are fewer "
            f"than {pipeline}."
        )
    elif framework.interleaving is Interleaving.PYTORCH:
        if micro_batches % (micro_batches // pipeline):
            yield (
                f"Interleaving needs equal groups of micro-batches, but {micro_batches} are not "
                f"{micro_batches // pipeline} equal groups (pipeline degree {pipeline})."
            )
    elif micro_batches % pipeline and framework.megatron_core < SIZED_SINCE:
        yield (
            f"Interleaving under {framework.name} needs micro-batches divisible by the pipeline degree, but "
            f"{micro_batches} is not by {pipeline}."
        )


def _order_rules(configuration: Configuration, model: Architecture) -> Iterator[str]:
    """Expert groups cannot reach over data ranks, nor repeat inside a cell, when pipeline ranks lie between.

    Megatron-Core demands equal data degrees of attention and experts unless the order ends with pipeline.
    """
    degrees = configuration.degrees
    if configuration.rank_order is RankOrder.DATA_BEFORE_PIPELINE or degrees.pipeline == 1:
        return
    inner = degrees.tensor * degrees.context
    if model.experts is not None and degrees.expert * degrees.expert_tensor != inner:
        yield (
            f"Rank order {configuration.rank_order} needs expert degree = tensor x context = {inner}, "
            f"got {degrees.expert}"
            + (f" x {degrees.expert_tensor} (expert tensor)." if degrees.expert_tensor > 1 else ".")
        )
    if model.experts is None and degrees.context > 1:
        yield (
            f"Rank order {configuration.rank_order} needs context degree 1 for a model without experts, got "
            f"{degrees.context}."
        )


def _recompute_rules(configuration: Configuration, problem: PlanningProblem) -> Iterator[str]:
    """Modules that the model has and the release can name, and limits that it takes.

    ``transformer_config.py``: modules since 0.12, shared experts since 0.14; norms and activations in 8 bits since
    0.14 and not with delayed scales; experts not under a graph of their router.
    """
    model, workload, framework = problem.architecture, problem.workload, problem.workload.framework
    names = sorted(map(str, configuration.recompute_modules))
    release, experts = framework.megatron_core, model.experts
    if str(configuration.recompute) == "full" and str(framework.cuda_graphs) == "partial":
        yield f"{framework.name} does not recompute whole layers beside CUDA graphs of parts of them."
    if configuration.recompute_layers and not framework.recompute_blocks:
        yield f"{framework.name} recomputes all layers of a stage or none, not {configuration.recompute_layers}."
    if not names:
        return
    mixers = {str(kind.mixer) for kind in model.layer_pattern}
    attends = bool(mixers & {"full", "window", "parallel"})
    latent = attends and model.latent_attention is not None
    has = {
        "core_attn": attends,
        "layernorm": latent or experts is not None,
        "mla_up_proj": latent and model.sparse_attention is None,
        "mlp": any(str(kind.mlp) == "dense" for kind in model.layer_pattern),
        "moe_act": experts is not None and str(workload.precision) not in ("fp16", "fp32"),
        "moe": experts is not None and str(framework.cuda_graphs) != "partial",
        "shared_experts": experts is not None and experts.shared_hidden > 0 and release >= 14,
    }
    if release < 12:
        yield f"{framework.name} cannot recompute single modules ({', '.join(names)})."
    yield from (f"Module {name} cannot be recomputed here." for name in names if not has[name])
    eight_bit = str(workload.precision) in ("fp8", "mxfp8", "nvfp4")
    delayed = str(workload.precision) == "fp8" and str(framework.float8_scaling) == "delayed"
    if eight_bit and (delayed or release < 14) and {"layernorm", "moe_act"} & set(names):
        yield f"{framework.name} does not recompute norms and activations in {workload.precision}."
    if "moe" in names and {"moe_act", "shared_experts"} & set(names):
        yield "Module moe already recomputes moe_act and shared_experts."
    if str(framework.cuda_graphs) == "partial" and release < 16 and {"core_attn", "mla_up_proj"} & set(names):
        yield f"{framework.name} does not recompute attention inside its CUDA graph."


def _setting_rules(configuration: Configuration, problem: PlanningProblem) -> Iterator[str]:
    """Settings were free to choose, and the framework has what was chosen."""
    workload, framework, degrees = problem.workload, problem.workload.framework, configuration.degrees
    chosen = {str(name): str(value).lower() for name, value in configuration.settings.chosen.items()}
    yield from (
        f"The plan chose {name}, which was not free." for name in chosen if name not in workload.free_settings
    )
    overlaps, experts = {*map(str, framework.overlaps)}, problem.architecture.experts is not None
    known = {
        "cuda_graphs": {str(framework.cuda_graphs), *map(str, framework.graph_captures)},
        "expert_dispatch": {str(framework.expert_dispatch), *map(str, framework.expert_dispatches)},
        "overlap_tensor": {"true", "false"} if "overlap_tensor" in overlaps else set(),
        "expert_overlap": {"true", "false"} if "expert_overlap" in overlaps else set(),
    }
    for name, value in chosen.items():
        if value not in known[name]:
            yield f"{framework.name} has no {name} {value} to choose."
    on = {name for name, value in chosen.items() if value not in ("false", "none")}
    split = degrees.tensor > 1 and framework.sequence_parallel and not configuration.schedule.splits_backward
    if "overlap_tensor" in on and not (split and str(workload.precision) != "nvfp4"):
        yield "Overlapped tensor ranks split a sequence, not in NVFP4 and not beside split backward passes."
    travels = experts and degrees.expert > 1
    again = str(configuration.recompute) == "full" or "moe" in map(str, configuration.recompute_modules)
    beside = (degrees.pipeline == 1 or degrees.virtual_pipeline > 1) and not again
    if "expert_overlap" in on and not (travels and beside and str(workload.precision) != "fp32"):
        yield "Nothing runs beside the exchange of experts here."
    if "expert_dispatch" in chosen and not travels:
        yield "No tokens travel to experts here, so that no dispatcher is chosen."
    if "cuda_graphs" in on and workload.lengths is not None:
        yield "CUDA graphs need sequences of one length."
    graphs = chosen.get("cuda_graphs", "none")
    if graphs == "partial" and experts and framework.megatron_core < 16:
        yield f"{framework.name} captures no router."


def _state_rules(configuration: Configuration, workload: TrainingWorkload) -> Iterator[str]:
    """Narrow optimizer states need Megatron's distributed optimizer or its FSDP."""
    states, sharding = workload.optimizer_states, str(configuration.sharding)
    formats = (str(states.first_moment), str(states.second_moment), str(states.master_weight))
    if formats == ("fp32",) * 3 or not workload.framework.megatron_core:
        return
    if sharding == "none":
        yield f"{workload.framework.name} keeps optimizer states in {', '.join(formats)} only where it shards them."
    if sharding == "parameters" and formats[2] != "fp32":
        yield f"Sharded parameters have an FP32 master copy, not {formats[2]}."
    if sharding == "optimizer" and str(workload.precision) == "bf16" and formats[2] == "fp32":
        yield "Narrow moments beside sharded BF16 weights come with remainders, not an FP32 master copy."


def _size_rules(configuration: Configuration, workload: TrainingWorkload) -> Iterator[str]:
    """Degrees and sizes of options are those pinned and none forbidden; without groups none is the wrong one."""
    grouped = workload.takes_groups(configuration.sharding)
    for name in sorted(set(workload.pinned) | set(workload.forbidden)):
        of_configuration = hasattr(configuration, name)
        value = getattr(configuration if of_configuration else configuration.degrees, name)
        pinned = workload.pinned.get(name, value)
        if value != pinned:
            yield f"Degree {name} is {value} but the workload pins it to {pinned}."
        if value in workload.forbidden.get(name, ()) and (grouped or name != "sharding_ranks"):
            yield f"Degree {name} is {value}, which the workload forbids."


def _limits(configuration: Configuration, problem: PlanningProblem) -> Iterator[str]:
    workload, degrees = problem.workload, configuration.degrees
    yield from _size_rules(configuration, workload)
    if workload.max_gpus is not None and degrees.gpus > workload.max_gpus:
        yield f"The degrees take {degrees.gpus} GPUs but the workload allows {workload.max_gpus}."
    if configuration.recompute not in workload.recompute:
        yield f"Recomputation '{configuration.recompute}' is not among {_listed(workload.recompute)}."
    modules = configuration.recompute_modules
    if not modules <= {*workload.recompute_modules, *(workload.pinned_modules or ())}:
        yield f"Modules {_listed(tuple(sorted(modules)))} are not among {_listed(workload.recompute_modules)}."
    if workload.pinned_modules is not None and modules not in (frozenset(workload.pinned_modules), frozenset()):
        yield f"Modules {_listed(tuple(sorted(modules)))} are not those pinned: {_listed(workload.pinned_modules)}."
    if configuration.sharding not in workload.sharding:
        yield f"Sharding '{configuration.sharding}' is not among {_listed(workload.sharding)}."
    gradients = str(configuration.sharding) == "gradients"
    if gradients and (degrees.pipeline > 1 or not workload.framework.gradient_sharding):
        yield f"{workload.framework.name} does not shard gradients on {degrees.pipeline} pipeline ranks."
    yield from group_rules(configuration, workload)
    yield from _state_rules(configuration, workload)
    yield from offload_rules(configuration, workload)
    disks = [node.host.disk_bytes for node in problem.snapshot.cluster.nodes if node.host]
    if configuration.offload_to_disks and not any(disks):
        yield "No node states disks that offloaded states may fill."
    if configuration.schedule not in workload.schedule:
        yield f"Schedule '{configuration.schedule}' is not among {_listed(workload.schedule)}."


def _listed(choices: tuple[str, ...]) -> str:
    return ", ".join(str(choice) for choice in choices)
