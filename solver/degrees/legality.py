"""Contradictions between workload, model and cluster, found field by field before any search."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import Mixer
from cluster_models.training.context_exchange import exchange_refusal, usable_exchanges
from cluster_models.training.framework_choices import ContextExchange, Optimizer
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, frameworks
from cluster_models.training.free_settings import leanest_settings
from cluster_models.training.interleaving import Interleaving
from cluster_models.training.optimizer_states import MasterFormat, MomentFormat
from cluster_models.training.recompute import default_modules, recomputable_modules
from cluster_models.training.workload import (
    Objective,
    Recompute,
    Sharding,
    TrainingWorkload,
)
from solver.costs.adapters import linears_of
from solver.degrees.kind_mixes import most_gpus_on
from solver.degrees.memory_mixes import limits_of, mixes_of
from solver.degrees.model_divisions import context_legal, expert_tensor_legal, tensor_legal
from solver.degrees.offload_legality import check_offload, check_offloaded_layers
from solver.degrees.rule_filter import check_placement
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem


def check_workload(problem: PlanningProblem, fabrics: Sequence[Fabric], mixed: Sequence[Fabric] = ()) -> None:
    """Raise ``InvalidWorkload`` naming the first field that the model or the cluster contradicts.

    ``fabrics`` have GPUs of one kind each, ``mixed`` of several.
    """
    _check_cluster(problem, fabrics)
    _check_batch(problem)
    _check_adapters(problem)
    _check_sharding(problem.workload)
    _check_stream(problem)
    _check_model(problem)
    check_offloaded_layers(problem)
    _check_recomputation(problem)
    _check_states(problem.workload)
    check_offload(problem)
    _check_size(problem, fabrics if problem.workload.pinned.get("pipeline") == 1 else [*fabrics, *mixed])
    check_placement(problem, fabrics)


def _check_cluster(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> None:
    workload = problem.workload
    if not fabrics and not workload.avoid_nodes:
        states = sorted({str(node.state) for node in problem.snapshot.cluster.nodes})
        raise InvalidWorkload(
            "cluster.nodes",
            states,
            "no node is usable",
            "set the state of nodes that work to ready, and take free GPUs out of gpus_in_use",
        )
    if not fabrics:
        raise InvalidWorkload(
            "workload.avoid_nodes",
            list(workload.avoid_nodes),
            "no usable node is left",
            "avoid fewer nodes, or set the state of repaired nodes to ready",
        )
    known = {precision for fabric in fabrics for precision in fabric.gpu.peak_flops}
    if workload.precision not in known:
        names = ", ".join(sorted({fabric.gpu.name for fabric in fabrics}))
        raise InvalidWorkload(
            "workload.precision",
            str(workload.precision),
            f"{names} cannot compute in it",
            f"use one of {', '.join(sorted(known))}",
        )
    unpriced = sorted({fabric.gpu.name for fabric in fabrics if fabric.gpu.price_usd_per_hour is None})
    if workload.objective is Objective.COST and unpriced:
        raise InvalidWorkload(
            "workload.objective",
            str(workload.objective),
            f"{', '.join(unpriced)} has no price",
            "give price_usd_per_hour under gpu_kinds, or choose another objective",
        )


def _check_batch(problem: PlanningProblem) -> None:
    workload = problem.workload
    unit = 1
    for degree in ("data", "micro_batch"):
        size = workload.pinned.get(degree)
        if size is None:
            continue
        unit *= size
        if workload.global_batch % unit:
            names = " x ".join(d for d in ("data", "micro_batch") if d in workload.pinned)
            raise InvalidWorkload(
                f"workload.pinned.{degree}",
                size,
                f"the global batch of {workload.global_batch} sequences does not divide by {names} = {unit}",
                f"use a global batch that is a multiple of {unit}, or pin another size",
            )


def _check_model(problem: PlanningProblem) -> None:
    model, workload, pinned = problem.architecture, problem.workload, problem.workload.pinned
    lacking = model.parts - {*workload.framework.model_parts}
    if lacking:
        able = [each.name for each in frameworks().values() if model.parts <= {*each.model_parts}]
        raise InvalidWorkload(
            "workload.framework",
            workload.framework.name,
            f"trains no {', '.join(sorted(lacking)).replace('_', ' ')}, which {model.name} has",
            f"use one of {', '.join(able)}" if able else "no framework that is known trains such a model",
        )
    tensor = pinned.get("tensor")
    if tensor is not None and not tensor_legal(model, workload, tensor):
        raise InvalidWorkload(
            "workload.pinned.tensor",
            tensor,
            f"must divide the {model.heads} heads, the width {model.hidden} and the sequence of "
            f"{workload.sequence_length}, and divide or be a multiple of the {model.kv_heads} key/value heads",
        )
    context = pinned.get("context")
    if context is not None and not context_legal(model, workload, 1, context):
        raise InvalidWorkload(
            "workload.pinned.context",
            context,
            f"twice its size must divide the sequence of {workload.sequence_length} tokens"
            + _shared_by_context(model),
        )
    _check_exchange(problem)
    expert = pinned.get("expert", 1)
    count = model.experts.count if model.experts else 1
    if count % expert:
        problem_text = f"must divide the {count} experts" if model.experts else "the model has no experts"
        raise InvalidWorkload("workload.pinned.expert", expert, problem_text, "pin another size or none")
    _check_expert_tensor(problem)
    framework = workload.framework
    if not {*framework.schedules} & {*workload.schedule} and pinned.get("pipeline") != 1:
        raise InvalidWorkload(
            "workload.schedule",
            list(workload.schedule),
            f"{framework.name} has {', '.join(framework.schedules)} only",
            "allow one of these, or plan for another framework",
        )
    chunks = pinned.get("pipeline", 1) * pinned.get("virtual_pipeline", 1)
    if chunks > model.layers:
        raise InvalidWorkload(
            "workload.pinned.pipeline",
            pinned.get("pipeline", 1),
            f"{chunks} stages need at least as many layers, the model has {model.layers}",
        )
    if pinned.get("virtual_pipeline", 1) > 1 and workload.framework.interleaving is Interleaving.NONE:
        raise InvalidWorkload(
            "workload.pinned.virtual_pipeline",
            pinned["virtual_pipeline"],
            f"{workload.framework.name} gives a pipeline rank one stage only",
            f"pin 1 or nothing, or plan for {DEFAULT_FRAMEWORK.name}",
        )
    if pinned.get("virtual_pipeline", 1) > 1 and pinned.get("pipeline") == 1:
        raise InvalidWorkload(
            "workload.pinned.virtual_pipeline",
            pinned["virtual_pipeline"],
            "interleaving needs a pipeline, but pipeline is pinned to 1",
        )


def _check_exchange(problem: PlanningProblem) -> None:
    """Where context ranks or those that exchange heads are pinned, some exchange allowed is possible."""
    model, workload = problem.architecture, problem.workload
    field, allowed = "workload.context_exchange", list(map(str, workload.context_exchange))
    usable, heads = usable_exchanges(model, workload), workload.pinned.get("head_ranks", 0)
    if heads and ContextExchange.HIERARCHICAL not in usable:
        raise InvalidWorkload(
            "workload.pinned.head_ranks", heads, "exchange heads in a hierarchical exchange", f"allow it in {field}"
        )
    if workload.pinned.get("context", 1) == 1 or usable:
        return
    able = [str(each) for each in ContextExchange if not exchange_refusal(model, workload, each)]
    raise InvalidWorkload(
        field,
        allowed,
        "; ".join(f"{each} {exchange_refusal(model, workload, each)}" for each in workload.context_exchange),
        f"allow {' or '.join(able)}" if able else "pin context to 1",
    )


def _shared_by_context(model: Architecture) -> str:
    """Further work that context ranks share out, as the end of a sentence."""
    heads = [f"{model.linear_attention.key_heads} heads of linear attention"] if model.linear_attention else []
    heads += [f"{model.state_space.heads} heads of the state space"] if model.state_space else []
    return "".join(f", and it must divide the {each}" for each in heads)


def _check_recomputation(problem: PlanningProblem) -> None:
    """Some mix of recomputation is left with the leanest settings, and pinned modules can be recomputed."""
    problem = problem.under(leanest_settings(problem.architecture, problem.workload))
    workload, framework = problem.workload, problem.workload.framework
    known = recomputable_modules(problem.architecture, framework, workload.precision)
    pinned = set(workload.pinned_modules or ()) - known - default_modules(framework)
    if pinned:
        names = ", ".join(sorted(known)) or "none of the names of Megatron-Core's modules"
        raise InvalidWorkload(
            "workload.pinned_modules",
            sorted(map(str, pinned)),
            f"{framework.name} cannot recompute them one by one in this model and precision",
            f"pin some of {names}, or leave it out",
        )
    if not mixes_of(problem) and not limits_of(problem, problem.architecture.layers):
        raise InvalidWorkload(
            "workload.recompute",
            list(map(str, workload.recompute)),
            f"leaves no recomputation that {framework.name} has, with the modules and layers allowed",
            "allow none or full, or pin and forbid less",
        )


def _check_states(workload: TrainingWorkload) -> None:
    """The framework has the formats of the optimizer's states, and a sharding allowed under which it has them."""
    states, framework, field = workload.optimizer_states, workload.framework, "workload.optimizer_states"
    if not states.is_narrow:
        return
    if workload.optimizer is not Optimizer.ADAM or workload.precision is Precision.FP32:
        what = f"{workload.precision} training with {workload.optimizer}"
        raise InvalidWorkload(field, states.words, f"goes with Adam in 16 bits or less, not {what}", "leave it out")
    moments = MomentFormat.FP32, *framework.moment_formats
    masters = MasterFormat.FP32, *framework.master_formats
    for name, asked, known in (
        ("first_moment", states.first_moment, moments),
        ("second_moment", states.second_moment, moments),
        ("master_weight", states.master_weight, masters),
    ):
        if asked not in known:
            usual = "16 bits" if framework.sixteen_bit_states else "fp32"
            remedy = f"use one of {', '.join(known)}" if len(known) > 1 else f"leave it out: {usual} is what it has"
            raise InvalidWorkload(f"{field}.{name}", str(asked), f"{framework.name} does not keep it so", remedy)
    if (
        MomentFormat.INT8 in (states.first_moment, states.second_moment)
        and states.first_moment != states.second_moment
    ):
        raise InvalidWorkload(
            f"{field}.second_moment", str(states.second_moment), "both moments have int8, or none"
        )
    if states.master_weight is MasterFormat.REMAINDER and workload.precision is not Precision.BF16:
        problem = f"completes BF16 weights, and training in {workload.precision} has none"
        raise InvalidWorkload(f"{field}.master_weight", "remainder", problem, "use fp32")
    if not workload.shardings:
        remedy = "allow sharding optimizer"
        if states.master_weight is MasterFormat.FP32 and workload.precision is Precision.BF16:
            remedy = "use master_weight remainder with sharding optimizer, or allow sharding parameters"
        raise InvalidWorkload(
            "workload.sharding",
            list(map(str, workload.sharding)),
            f"{framework.name} does not keep the optimizer's states as {states.words} under it",
            remedy,
        )


def _check_adapters(problem: PlanningProblem) -> None:
    """The model has linear layers that adapters are planned for, and pinned tensor ranks cut them evenly."""
    model, workload = problem.architecture, problem.workload
    if (adapters := workload.adapters) is None:
        return
    others = {kind.mixer for kind in model.layer_kinds} - {Mixer.FULL, Mixer.WINDOW}
    if others or model.latent_attention is not None or model.sparse_attention is not None:
        raise InvalidWorkload(
            "workload.adapters",
            adapters.words,
            f"are planned for attention with projections of queries, keys and values, and {model.name} has others",
            "leave them out: all weights are trained then",
        )
    if not any(linears_of(model, adapters, workload.framework)):
        raise InvalidWorkload(
            "workload.adapters.modules",
            list(map(str, adapters.modules)),
            f"name no linear layer of {model.name}, whose routed experts have no adapters",
            "use linear_qkv or linear_proj",
        )
    tensor = workload.pinned.get("tensor", 1)
    if adapters.rank % tensor:
        raise InvalidWorkload(
            "workload.adapters.rank", adapters.rank, f"must divide by the {tensor} tensor ranks that are pinned"
        )


def _check_sharding(workload: TrainingWorkload) -> None:
    """The framework has some sharding allowed, and pinned groups of ranks that share parameters out."""
    if set(workload.sharding) == {Sharding.GRADIENTS} and not workload.framework.gradient_sharding:
        raise InvalidWorkload(
            "workload.sharding",
            list(map(str, workload.sharding)),
            f"{workload.framework.name} does not shard gradients without parameters",
            "allow optimizer or parameters, or use a framework with gradient_sharding",
        )
    size = workload.pinned.get("sharding_ranks", 0)
    if not size:
        return
    field, name = "workload.pinned.sharding_ranks", workload.framework.name
    able = [each for each in Sharding if workload.takes_groups(each)]
    if not able:
        remedy = "pin 0 or nothing, or use a framework with hybrid_sharding or several instances of its optimizer"
        raise InvalidWorkload(field, size, f"{name} does not shard in groups of data ranks", remedy)
    if not {*able} & {*workload.sharding}:
        wanted = " or ".join(able)
        raise InvalidWorkload(field, size, f"are groups that share {wanted} out", f"allow sharding {wanted}")


def _check_stream(problem: PlanningProblem) -> None:
    """Layers that run by chunks of a sequence are dense, with attention, and no weights are sharded."""
    workload, model = problem.workload, problem.architecture
    if not workload.framework.stream_tokens:
        return
    has_others = model.experts is not None or not all(kind.attends for kind in model.layer_kinds)
    reasons = (
        (has_others, "is known of dense layers with attention", "plan another model"),
        ({*workload.recompute} != {Recompute.FULL}, "goes with recompute full alone", "allow recompute full alone"),
        (
            not workload.shardings,
            "goes with sharding none, optimizer or gradients (DeepSpeed's stages 1 and 2)",
            "allow one of them",
        ),
    )
    for holds, reason, remedy in reasons:
        if holds:
            field = "workload.framework_settings.stream_tokens"
            raise InvalidWorkload(field, workload.framework.stream_tokens, reason, f"use 0, or {remedy}")


def _check_expert_tensor(problem: PlanningProblem) -> None:
    model, workload = problem.architecture, problem.workload
    size = workload.pinned.get("expert_tensor", 1)
    if expert_tensor_legal(model, workload, size):
        return
    field, name = "workload.pinned.expert_tensor", workload.framework.name
    if model.experts is None:
        raise InvalidWorkload(field, size, "the model has no experts", "pin 1 or nothing")
    if model.mlp_bias:
        raise InvalidWorkload(field, size, "experts with biases are not cut (Megatron-Core)", "pin 1 or nothing")
    if not workload.framework.expert_tensor:
        raise InvalidWorkload(
            field,
            size,
            f"{name} gives experts no tensor size of their own",
            f"pin 1 or nothing, or plan for {DEFAULT_FRAMEWORK.name}",
        )
    if not workload.framework.sequence_parallel:
        raise InvalidWorkload(
            field, size, "cutting experts needs sequence parallelism", "set framework_settings.sequence_parallel"
        )
    raise InvalidWorkload(
        field, size, f"must divide the expert's width {model.experts.hidden}", "pin another size or none"
    )


def _check_size(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> None:
    workload = problem.workload
    product = 1
    for degree in ("tensor", "context", "pipeline", "data"):
        product *= workload.pinned.get(degree, 1)
    most = max(fabric.nodes * fabric.gpus_per_unit for fabric in fabrics)
    limit = min(most, max(most_gpus_on(fabric, workload) for fabric in fabrics))
    if limit < 1:
        least = min(kind.power_watts for fabric in fabrics for kind in fabric.kinds)
        raise InvalidWorkload(
            "workload.max_power_watts",
            workload.max_power_watts,
            f"is less than the {least:g} W of one GPU",
            f"give at least {least:g}",
        )
    if product > limit:
        raise InvalidWorkload(
            "workload.pinned",
            dict(workload.pinned),
            f"the pinned degrees need {product} GPUs but only {limit:g} may be used",
            "pin smaller degrees, raise max_gpus or max_power_watts, or avoid fewer nodes",
        )
    largest = max(fabric.gpus_per_unit for fabric in fabrics)
    for degree in ("tensor", "expert_tensor"):
        if workload.pinned.get(degree, 1) > largest:
            raise InvalidWorkload(
                f"workload.pinned.{degree}",
                workload.pinned[degree],
                f"{degree} groups stay inside a node or NVLink domain, and the largest has {largest} GPUs",
            )
