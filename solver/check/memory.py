"""Whether the memory account is complete, plausible and within each GPU's limit.

Weights are derived again from parameter counts.  Where Megatron-Core repeats a matrix on every tensor rank
(latent down-projections, router, norms, position table, key/value heads that are fewer than ranks) the exact
amount depends on its version, so a stage's weights must lie between "all shared out" and "all of those
repeated".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from cluster_models.cluster.gpus import Precision
from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import Mixer
from cluster_models.training.plan import Configuration, Degrees, Plan
from cluster_models.training.rank_costs import StageMemory
from cluster_models.training.workload import Sharding
from solver.check.adapters import adapter_parameters
from solver.problem import PlanningProblem

WEIGHT_TOLERANCE: Final = 0.02
"""Room for padding the vocabulary to a multiple of 128 x tensor degree, as Megatron does."""
LIMIT_TOLERANCE: Final = 1e-6
WEIGHT_BYTES: Final = {
    Precision.BF16: (2, 2),
    Precision.FP16: (2, 2),
    Precision.FP8: (1, 4),
    Precision.MXFP8: (1, 4),
    Precision.NVFP4: (0.5, 4),
    Precision.FP32: (4, 4),
}
"""Bytes of one weight, least and most.  8-bit training keeps one byte, or two, or two and an 8-bit copy with its
transpose; 4-bit training likewise."""
FP32_BYTES: Final = 4
"""Bytes of a weight's shard where the FP32 shard is the weight itself (PyTorch FSDP)."""
_STATE_BYTES: Final = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "remainder": 2.0,
    "fp8": 1.0,
    "int8": 1.0 + 4.0 / 256,
}
"""Bytes of a moment or a master weight; a scale of 4 bytes for every 256 elements of 8-bit Adam."""
Interval = tuple[float, float]


def memory_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules that the memory account of the stages breaks."""
    pipeline = plan.configuration.degrees.pipeline
    stages = [memory.stage for memory in plan.memory]
    if stages != list(range(pipeline)):
        yield f"The memory account lists stages {stages} for pipeline degree {pipeline}."
    for memory in plan.memory:
        yield from _part_rules(memory)
        yield from _limit_rules(memory, plan, problem)
    if _layers_are_complete(plan.configuration, problem.architecture):
        for memory in plan.memory:
            if 0 <= memory.stage < pipeline:
                yield from _state_rules(memory, plan.configuration, problem)


def _part_rules(memory: StageMemory) -> Iterator[str]:
    total = 0.0
    for part in fields(memory):
        if part.name in ("stage", "limit_bytes", "host_bytes", "disk_bytes"):
            continue
        size = getattr(memory, part.name)
        total += size
        if not (math.isfinite(size) and size >= 0):
            yield f"Stage {memory.stage} has {part.name} = {size}, which is not an amount of memory."
    if not math.isclose(total, memory.total_bytes, rel_tol=1e-9, abs_tol=1.0):
        yield f"The parts of stage {memory.stage} add up to {total:.0f} bytes, not {memory.total_bytes:.0f}."
    if not total <= memory.limit_bytes * (1 + LIMIT_TOLERANCE):
        yield f"Stage {memory.stage} needs {total:.0f} bytes but its limit is {memory.limit_bytes:.0f}."


def _limit_rules(memory: StageMemory, plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """The limit is that of the smallest GPU of the stage, or of the smallest one of the cluster at worst."""
    cluster = problem.snapshot.cluster
    sizes = {node.name: cluster.gpu_kinds[node.gpu_kind].memory_bytes for node in cluster.nodes}
    share = 1 - problem.workload.memory_headroom
    here = [sizes[p.node] for p in plan.placement.ranks if p.pipeline == memory.stage and p.node in sizes]
    if not here:
        return
    low, high = min(sizes.values()) * share, min(here) * share
    if not low * (1 - LIMIT_TOLERANCE) <= memory.limit_bytes <= high * (1 + LIMIT_TOLERANCE):
        yield (
            f"Stage {memory.stage} has a limit of {memory.limit_bytes:.0f} bytes but its GPUs leave "
            f"{high:.0f} after {100 * problem.workload.memory_headroom:.1f} % head-room."
        )


def _layers_are_complete(configuration: Configuration, model: Architecture) -> bool:
    rows, degrees = configuration.stage_layers, configuration.degrees
    shape_is_right = len(rows) == degrees.virtual_pipeline and all(len(r) == degrees.pipeline for r in rows)
    return shape_is_right and sum(map(sum, rows)) == model.layers and min(map(min, rows)) >= 0


def _state_rules(memory: StageMemory, configuration: Configuration, problem: PlanningProblem) -> Iterator[str]:
    stage = memory.stage
    for what, stated, (low, high) in (
        ("weights", memory.weights_bytes, _weight_bytes(stage, configuration, problem)),
        ("optimizer states", memory.optimizer_bytes, _optimizer_bytes(stage, configuration, problem)),
        ("gradients", memory.gradients_bytes, (0.0, 0.0 if _forward_alone(problem) else math.inf)),
    ):
        if not low * (1 - WEIGHT_TOLERANCE) <= stated <= high * (1 + WEIGHT_TOLERANCE):
            yield (
                f"Stage {stage} states {stated:.0f} bytes of {what} but its parameters "
                f"take {low:.0f} to {high:.0f}."
            )


def _forward_alone(problem: PlanningProblem) -> bool:
    return str(problem.workload.optimizer) == "zeroth_order"


def _optimizer_bytes(stage: int, configuration: Configuration, problem: PlanningProblem) -> Interval:
    """Least and most bytes of optimizer states on one GPU of ``stage``, most with copies that a step makes."""
    workload, framework = problem.workload, problem.workload.framework
    optimizer = str(workload.optimizer)
    if _forward_alone(problem):  # a direction, a factor times it and the sum, of the largest tensor
        model, tensor = problem.architecture, configuration.degrees.tensor
        table = model.hidden * model.vocabulary / tensor
        return 0.0, 3 * 2.0 * max(table, _largest_matrix(model, configuration.degrees))
    states, own = (
        workload.optimizer_states,
        configuration.sharding is Sharding.PARAMETERS and framework.sharded_master,
    )
    two = optimizer in {"adam", "adaptive_muon"}
    moments = [str(states.first_moment), str(states.second_moment)][: 1 + two]
    kept = sum(_STATE_BYTES[name] for name in moments)
    if workload.precision is not Precision.FP32 and not framework.sixteen_bit_states and not own:
        kept += _STATE_BYTES[str(states.master_weight)]
    if framework.sixteen_bit_states:
        kept /= 2
    narrow = sum(name != "fp32" for name in (*moments, str(states.master_weight)))
    least, most = owned_parameters(stage, configuration, problem)
    tables = 0.0
    if optimizer in {"muon", "lion"}:  # Adam's second moment outside layers
        ends = sum(end[0] for end in _end_parameters(problem.architecture, stage, configuration))
        tables = _STATE_BYTES[str(states.second_moment)] * ends / _groups(configuration)[0]
    if optimizer in {"muon", "lion", "adaptive_muon"}:  # no matrix in parts
        gated = 1 + problem.architecture.gated_mlp
        most = max(most, gated * _largest_matrix(problem.architecture, configuration.degrees))
    here = 1.0 - configuration.optimizer_offload / 100
    step = kept + framework.step_bytes + FP32_BYTES * narrow
    critics = (workload.roles.trained - 1) * kept
    return here * least * (kept + critics) + tables, here * most * (step + critics) + tables * (1 + critics / kept)


def _largest_matrix(model: Architecture, degrees: Degrees) -> float:
    """Parameters of the largest matrix of a layer on one GPU."""
    widths = [model.mlp_hidden, model.heads * max(model.head_widths)]
    largest = model.hidden * max(widths) / degrees.tensor
    if model.experts is not None:
        largest = max(largest, model.expert_width * model.experts.hidden / degrees.expert_tensor)
    return float(largest)


def owned_parameters(stage: int, configuration: Configuration, problem: PlanningProblem) -> Interval:
    """Least and most parameters whose optimizer states one GPU of ``stage`` owns."""
    workload = problem.workload
    chunks, low, high, routed = _parameters(stage, configuration, problem)
    if workload.adapters is not None:
        low, high, routed = *_adapters_held(chunks, configuration, problem), 0.0
    groups = _groups(configuration)
    if configuration.sharding is Sharding.NONE:
        groups = (1, 1)
    most = workload.framework.sharding_ranks or groups[0]
    shared = max(ranks for ranks in range(1, groups[0] + 1) if groups[0] % ranks == 0 and ranks <= max(most, 1))
    few = [shared, max(groups[1] * shared // groups[0], 1)]
    return low / groups[0] + routed / groups[1], high / few[0] + routed / few[1]


def _groups(configuration: Configuration) -> tuple[int, int]:
    """Ranks that share out the same parameters outside experts, and the same experts."""
    degrees = configuration.degrees
    group = configuration.sharding_ranks or degrees.data * degrees.context
    return group, max(degrees.tensor * group // (degrees.expert * degrees.expert_tensor), 1)


def _parameters(
    stage: int, configuration: Configuration, problem: PlanningProblem
) -> tuple[list[int], float, float, float]:
    """Layers of one GPU of ``stage``, least and most parameters outside routed experts, and those of these."""
    degrees, model = configuration.degrees, problem.architecture
    chunks: list[int] = []
    first = 0
    for rank, count in configuration.chunks:
        if rank == stage:
            chunks += range(first, first + count)
        first += count
    if stage == configuration.chunks[-1][0]:  # multi-token prediction: decoder layers like the last one
        chunks += [model.layers - 1] * model.prediction_layers
    shared = [_common_parameters(model, layer, degrees.tensor) for layer in chunks]
    shared += _end_parameters(model, stage, configuration)
    routed = sum(model.is_sparse_layer(layer) for layer in chunks) * _routed_parameters(model, degrees)
    return chunks, sum(part[0] for part in shared), sum(part[1] for part in shared), routed


def _weight_bytes(stage: int, configuration: Configuration, problem: PlanningProblem) -> Interval:
    """Least and most bytes that one GPU of ``stage`` keeps of its weights."""
    degrees, model = configuration.degrees, problem.architecture
    least, most = WEIGHT_BYTES[problem.workload.precision]
    chunks, low, high, routed = _parameters(stage, configuration, problem)
    if problem.workload.adapters is not None:
        return _frozen_bytes(stage, configuration, problem)
    roles, method = problem.workload.roles, problem.workload.method
    models, frozen = roles.trained + roles.frozen(method), roles.frozen(method)
    whole = models * (low + routed) * least, models * (high + routed) * most
    if configuration.sharding is not Sharding.PARAMETERS:
        return whole
    # Two gathered layers may be counted as weights, the one in use and the one on its way, and what lies outside
    # layers; where the pipeline gathers once a step, the whole stage.
    group, expert_group = _groups(configuration)
    layer = max((_layer_parameters(model, layer, configuration) for layer in chunks), default=0.0)
    gathered = 2 * layer + sum(end[1] for end in _end_parameters(model, stage, configuration))
    if degrees.pipeline > 1 and problem.workload.framework.sharded_master:
        gathered = high + routed
    widest = max(most, FP32_BYTES if problem.workload.framework.sharded_master else 0)
    shards = low / group + routed / expert_group, high / group + routed / expert_group
    reference = frozen * most + (roles.trained - 1) * widest
    here = 1.0 - configuration.optimizer_offload / 100  # shards of parameters are offloaded with their states
    if here < 1.0 and str(problem.workload.framework.optimizer_offload) == "states":  # but for 16 bits of weights
        here, widest = float(not configuration.offload_parameters), most
    return here * models * shards[0] * least, here * shards[1] * (widest + reference) + gathered * most


def _adapters_held(chunks: list[int], configuration: Configuration, problem: PlanningProblem) -> Interval:
    """Least and most parameters of the adapters of the layers ``chunks`` on one GPU; tensor ranks cut each."""
    model, adapters = problem.architecture, problem.workload.adapters
    assert adapters is not None
    counts = [adapter_parameters(model, layer, adapters) for layer in chunks]
    tensor = configuration.degrees.tensor
    return sum(count[0] for count in counts) / tensor, sum(count[1] for count in counts) / tensor


def _frozen_bytes(stage: int, configuration: Configuration, problem: PlanningProblem) -> Interval:
    """Least and most bytes of frozen weights and of the adapters beside them.

    Four bits and scales in layers, 16 bits outside, and one matrix made wide for its product; where parameters are
    sharded two layers and the ends are gathered.
    """
    model, adapters, degrees = problem.architecture, problem.workload.adapters, configuration.degrees
    assert adapters is not None
    chunks, low, high, routed = _parameters(stage, configuration, problem)
    least, most = WEIGHT_BYTES[problem.workload.precision]
    ends = _end_parameters(model, stage, configuration)
    end_low, end_high = (sum(end[side] for end in ends) for side in (0, 1))
    own_low, own_high = _adapters_held(chunks, configuration, problem)
    extra = most * own_high
    narrow, wide = (0.5, 0.52) if str(adapters.frozen_weights) == "nf4" else (least, most)
    if narrow < least:
        widths = [model.mlp_hidden / degrees.tensor, model.heads * max(model.head_widths) / degrees.tensor]
        widths += [model.experts.hidden / degrees.expert_tensor] if model.experts else []
        extra += most * model.hidden * max(widths)
    group, expert_group = (1, 1)
    if configuration.sharding is Sharding.PARAMETERS:
        group, expert_group = _groups(configuration)
        gathered = 2 * max((_layer_parameters(model, layer, configuration) for layer in chunks), default=0.0)
        if degrees.pipeline > 1:
            gathered = high - end_high + routed
        extra += wide * gathered + most * end_high + FP32_BYTES * own_high
    return (
        narrow * ((low - end_low) / group + routed / expert_group) + least * (end_low + own_low) / group,
        wide * ((high - end_high) / group + routed / expert_group) + most * end_high / group + extra,
    )


def _common_parameters(model: Architecture, layer: int, tensor: int) -> Interval:
    """Mixer and MLP of one layer without its routed experts.

    All but weights of matrix products may be repeated, and of these those that compress, pick or route tokens.
    """
    kind = model.layer_pattern[layer]
    mixer, mlp = model.mixer_parameters(kind.mixer), model.mlp_parameters(kind.mlp)
    repeated = mixer - model.mixer_matrix_parameters(kind.mixer) + model.norm_parameters()
    if kind.attends:
        repeated += _repeated_attention(model.of_mixer(kind.mixer), tensor)
    elif kind.mixer is Mixer.LINEAR and (linear := model.linear_attention) is not None:
        repeated += model.hidden * (linear.gate_rank + linear.decay_rank)
    if kind.sparse and model.experts is not None:
        repeated += (model.hidden + 1) * (model.experts.count + 1 + 2 * model.experts.latent)
    total = float(mixer + mlp)
    return total / tensor, min(total, total / tensor + repeated)


def _repeated_attention(model: Architecture, tensor: int) -> int:
    """Weights of attention that every tensor rank may hold."""
    mla, sparse = model.latent_attention, model.sparse_attention
    repeated = 0
    if mla is not None:
        repeated += model.hidden * (mla.query_rank + mla.key_value_rank + mla.rope_head_size)
    elif model.kv_heads < tensor:
        repeated += 2 * model.hidden * model.head_size * model.kv_heads
    if sparse is not None:
        rank = mla.query_rank if mla is not None else model.hidden
        repeated += sparse.heads * (rank * sparse.head_size + model.hidden) + model.hidden * sparse.head_size
    return repeated


def _end_parameters(model: Architecture, stage: int, configuration: Configuration) -> list[Interval]:
    """Embedding on the first stage and head on the last; tied ones are one matrix when they meet."""
    tensor = configuration.degrees.tensor
    table, positions = float(model.hidden * model.vocabulary), float(model.hidden * model.learned_positions)
    ends: list[Interval] = []
    if stage == 0:
        ends.append(((table + positions) / tensor, table / tensor + positions))
    if stage == (last := configuration.chunks[-1][0]):
        head = 0.0 if model.tied_embeddings and last == 0 else table
        norm = model.norm_vectors * model.hidden
        ends.append(((head + norm) / tensor, head / tensor + norm))
        ends += [_prediction_parameters(model, tensor)] * model.prediction_layers
        if model.prediction_layers and last > 0 and not model.tied_embeddings:
            ends.append((table / tensor, table / tensor))  # prediction looks up the next embedding here
    return ends


def _prediction_parameters(model: Architecture, tensor: int) -> Interval:
    """Joins hidden state and next embedding, with their norms and the one before the head (arXiv 2412.19437)."""
    joining, norms = 2.0 * model.hidden**2, 3.0 * model.norm_vectors * model.hidden
    return (joining + norms) / tensor, joining / tensor + norms


def _routed_parameters(model: Architecture, degrees: Degrees) -> float:
    """Routed experts that one GPU holds of a sparse layer: whole ones, or a share of the width of each."""
    if model.experts is None:
        return 0.0
    return model.experts.count / degrees.expert * model.expert_parameters() / degrees.expert_tensor


def _layer_parameters(model: Architecture, layer: int, configuration: Configuration) -> float:
    degrees = configuration.degrees
    routed = _routed_parameters(model, degrees) if model.is_sparse_layer(layer) else 0.0
    return _common_parameters(model, layer, degrees.tensor)[1] + routed
