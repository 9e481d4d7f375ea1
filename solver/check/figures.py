"""Whether the plan's times, rates and names follow from one another and from the problem."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import Mixer, Mlp
from cluster_models.training.plan import Plan
from solver.check.adapters import adapter_parameters
from solver.problem import PlanningProblem

SUM_TOLERANCE = 1e-6
FLOP_TOLERANCE = 0.02


def figure_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules on names, step time and its interval, throughput and model FLOP/s that ``plan`` breaks."""
    yield from _name_rules(plan, problem)
    yield from _time_rules(plan)
    yield from _stage_rules(plan)
    if plan.time.step_s > 0:
        yield from _throughput_rules(plan, problem)
        yield from _forward_rules(plan, problem)
        yield from _flop_rules(plan, problem)
        yield from _interval_rules(plan)


def _name_rules(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    provenance, snapshot = plan.provenance, problem.snapshot
    if provenance.snapshot_id != snapshot.id:
        yield f"The plan names snapshot {provenance.snapshot_id} but was asked for {snapshot.id}."
    if provenance.cluster_name != snapshot.cluster.name:
        yield f"The plan names cluster {provenance.cluster_name} but was asked for {snapshot.cluster.name}."
    if plan.model != problem.architecture.name:
        yield f"The plan names model {plan.model} but was asked for {problem.architecture.name}."
    if plan.architecture not in (None, problem.architecture):
        yield f"The plan carries another architecture of {plan.model} than it was asked for."
    if plan.workload not in (None, problem.workload):
        yield "The plan carries another workload than it was asked for."


def _time_rules(plan: Plan) -> Iterator[str]:
    step = plan.time.step_s
    if not (math.isfinite(step) and step > 0):
        yield f"The step takes {step} s, which is not a duration."
        return
    parts = {part.name: getattr(plan.time, part.name) for part in fields(plan.time) if part.name != "step_s"}
    for name, seconds in parts.items():
        if not (math.isfinite(seconds) and seconds >= -SUM_TOLERANCE * step):
            yield f"Time part {name} is {seconds} s."
    total = sum(parts.values())
    if not math.isclose(total, step, rel_tol=SUM_TOLERANCE):
        yield f"The time parts add up to {total:.9g} s but the step takes {step:.9g} s."


def _stage_rules(plan: Plan) -> Iterator[str]:
    pipeline = plan.configuration.degrees.pipeline
    stages = [stage.stage for stage in plan.stages]
    if stages != list(range(pipeline)):
        yield f"Stage times are given for stages {stages} at pipeline degree {pipeline}."
    for stage in plan.stages:
        times = (stage.forward_s, stage.backward_s, stage.data_parallel_s)
        if not all(math.isfinite(seconds) and seconds >= 0 for seconds in times):
            yield f"Stage {stage.stage} has times {times} s."


def _forward_rules(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Zeroth-order training runs forward alone and exchanges no gradients."""
    if str(problem.workload.optimizer) != "zeroth_order":
        return
    configuration = plan.configuration
    said = configuration.degrees.pipeline, str(configuration.sharding), str(configuration.recompute)
    if said != (1, "none", "none"):
        yield f"Pipeline, sharding and recomputation {said} are not those of training with forward passes alone."
    if any(stage.backward_s or stage.data_parallel_s for stage in plan.stages) or plan.time.data_exposed_s:
        yield "The plan has a backward pass or an exchange of gradients, and is to train with forward passes alone."


def _throughput_rules(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    expected = problem.workload.tokens_per_step / plan.time.step_s
    if not math.isclose(plan.tokens_per_s, expected, rel_tol=SUM_TOLERANCE):
        yield f"The plan states {plan.tokens_per_s:.6g} tokens/s but its step time makes {expected:.6g}."
    expected /= plan.configuration.degrees.gpus
    if not math.isclose(plan.tokens_per_s_per_gpu, expected, rel_tol=SUM_TOLERANCE):
        yield (
            f"The plan states {plan.tokens_per_s_per_gpu:.6g} tokens/s per GPU but its step time and "
            f"{plan.configuration.degrees.gpus} GPUs make {expected:.6g}."
        )


def _interval_rules(plan: Plan) -> Iterator[str]:
    sure = plan.confidence
    if sure is None:
        return
    if not 0 < sure.step_low_s <= plan.time.step_s <= sure.step_high_s < math.inf:
        yield (
            f"The step takes {plan.time.step_s:.6g} s, outside its own interval of {sure.step_low_s:.6g} to "
            f"{sure.step_high_s:.6g} s."
        )
    if not 0 < sure.level < 1:
        yield f"The interval of the step holds a share of {sure.level}."


def _flop_rules(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    workload = problem.workload
    low, high = model_flops_per_token(problem.architecture, workload.sequence_length)
    if workload.lengths is not None:
        low, _ = model_flops_per_token(problem.architecture, 1)
    if workload.adapters is not None:
        low, high = _beside_frozen(low, high, problem)
    if str(workload.optimizer) == "zeroth_order":
        low, high = low * 2 / 3, high * 2 / 3  # two passes, each as long as one of three
    tokens = workload.tokens_per_step / plan.time.step_s / plan.configuration.degrees.gpus
    if workload.adapters is None:
        tokens *= (
            1.0 + workload.roles.passes(workload.method) / 3.0
        )  # passes of equal work beside the three of training
    stated = plan.model_flops_per_s_per_gpu
    if not low * tokens * (1 - FLOP_TOLERANCE) <= stated <= high * tokens * (1 + FLOP_TOLERANCE):
        yield (
            f"The plan states {stated:.6g} model FLOP/s per GPU but the model's shape allows "
            f"{low * tokens:.6g} to {high * tokens:.6g}."
        )
    cluster = problem.snapshot.cluster
    kinds = [cluster.gpu_kinds[node.gpu_kind] for node in cluster.nodes if node.name in plan.placement.hosts]
    peaks = [kind.peak_flops[workload.precision] for kind in kinds if workload.precision in kind.peak_flops]
    if len(peaks) < len(kinds):
        yield f"A GPU kind of the plan has no {workload.precision} arithmetic."
    if not peaks:
        return
    expected = stated / (sum(peaks) / len(peaks))  # every host gives the plan equally many GPUs
    if not math.isclose(plan.mfu, expected, rel_tol=SUM_TOLERANCE):
        yield f"The plan states an MFU of {plan.mfu:.6g} but FLOP/s over the peak of its GPUs is {expected:.6g}."


def _beside_frozen(low: float, high: float, problem: PlanningProblem) -> tuple[float, float]:
    """The same of adapters, 6 FLOPs a parameter, beside frozen weights, whose gradients take none.

    A reference model runs forward once more.
    """
    model, workload = problem.architecture, problem.workload
    assert workload.adapters is not None
    passes = 1.0 + workload.roles.passes(workload.method) / 3.0
    frozen = 2.0 * (model.hidden * model.vocabulary + _active_matrix_parameters(model))
    counts = [adapter_parameters(model, layer, workload.adapters) for layer in range(model.layers)]
    least, most = (6.0 * sum(count[end] for count in counts) for end in (0, 1))
    return passes * low - frozen + least, passes * high - frozen + most


def model_flops_per_token(model: Architecture, sequence_length: int) -> tuple[float, float]:
    """Least and most model FLOPs of one token, forward and backward, as the field counts them.

    Three times two FLOPs per parameter that a matrix product uses, plus attention scores and values (PaLM,
    arXiv 2204.02311, appendix B).  Counts differ on whether the causal mask and a window halve attention
    (low end: yes) and whether embedding and norms count as parameters (high end: yes).
    """
    table = model.hidden * model.vocabulary
    used = model.active_parameters() + (table if model.tied_embeddings else 0)
    matrices = table + _active_matrix_parameters(model)
    least = min(sequence_length, model.sliding_window or sequence_length)
    least = min(least, model.sparse_attention.top_k) if model.sparse_attention else least
    low, high = 6.0 * matrices, 6.0 * used
    for kind in model.layer_pattern:
        if kind.attends:
            attention = 6.0 * _score_width(model.of_mixer(kind.mixer))
            low, high = low + attention * least / 2, high + attention * sequence_length
    return low, high + 3.0 * _state_flops(model)


def _score_width(model: Architecture) -> int:
    """Elements of queries and of values that meet each key, an indexer's queries among them."""
    if (mla := model.latent_attention) is None:
        width = model.heads * (model.head_size + (model.value_head_size or model.head_size))
    else:
        width = model.heads * (mla.nope_head_size + mla.rope_head_size + mla.value_head_size)
    return width + (
        model.sparse_attention.heads * model.sparse_attention.head_size if model.sparse_attention else 0
    )


def _state_flops(model: Architecture) -> float:
    """The most that states of linear attention and state spaces, and convolutions, take forward, for one token.

    No recurrence takes more than ten operations on an element of its state, nor a convolution on a channel more
    than two a tap.
    """
    total = 0.0
    for kind in model.layer_pattern:
        if kind.mixer is Mixer.LINEAR and (linear := model.linear_attention) is not None:
            state = linear.value_heads * linear.key_head_size * linear.value_head_size
            total += 10.0 * state + 2.0 * linear.convolution * linear.convolved_width
        elif kind.mixer in (Mixer.STATE_SPACE, Mixer.PARALLEL) and (space := model.state_space) is not None:
            total += 10.0 * space.inner * space.state + 2.0 * space.convolution * space.convolved_width
        elif kind.mixer is Mixer.CONVOLUTION:
            total += 2.0 * model.short_convolution * model.hidden
    return total


def _active_matrix_parameters(model: Architecture) -> int:
    """Weights of all layers that one token meets in matrix products, the head left out."""
    h, total = model.hidden, 0
    for kind in model.layer_pattern:
        total += model.mixer_matrix_parameters(kind.mixer)
        if kind.mlp is Mlp.DENSE:
            total += model.mlp_matrices * h * model.mlp_hidden
        elif kind.sparse and (experts := model.experts) is not None:
            routed = model.mlp_matrices * (experts.latent or h) * experts.active * experts.hidden
            shared = model.mlp_matrices * h * experts.shared_hidden
            total += routed + shared + h * (experts.count + 2 * experts.latent)
    return total
