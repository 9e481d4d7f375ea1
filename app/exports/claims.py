"""The figures that files say of a launch, and what they must be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.exports.launch_value import Launch
from app.exports.megatron_releases import connections
from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import Mixer
from cluster_models.model.patterns import blocks_of
from cluster_models.training.adapters import Adapters
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.training.framework_choices import ShardedExchange
from cluster_models.training.optimizer_states import OptimizerStates
from cluster_models.training.plan import Plan, RankOrder
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Sharding, TrainingWorkload

ExpertOrder = tuple[tuple[int, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims of files about a launch; ``None`` where they make none.

    ``gpus[slot]`` are the GPU numbers of a host in rank order, ``layers`` decoder layers in all, ``experts`` those
    of one sparse layer, ``expert_order`` the layers whose experts leave their natural order and what lies in each
    position, ``expert_slots`` where all of them lie, ``first_host`` where ranks meet, ``micro_batch_group`` how
    many micro-batches pass a virtual stage together, 1 without any.  From ``hidden`` on the figures of the model,
    as ``Architecture`` and ``Experts`` name them; ``positions`` is the length of a learned table, or the sequence
    length.  ``connections`` is ``CUDA_DEVICE_MAX_CONNECTIONS``.
    """

    world: int | None = None
    hosts: tuple[str, ...] | None = None
    first_host: str | None = None
    gpus_per_host: int | None = None
    gpus: tuple[tuple[int, ...], ...] | None = None
    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None
    context: int | None = None
    expert: int | None = None
    expert_tensor: int | None = None
    virtual_pipeline: int | None = None
    micro_batch_group: int | None = None
    rank_order: RankOrder | None = None
    layers: int | None = None
    stage_layers: tuple[tuple[int, ...], ...] | None = None
    micro_batch: int | None = None
    global_batch: int | None = None
    sequence_length: int | None = None
    sharding: Sharding | None = None
    sharding_ranks: int | None = None
    optimizer_offload: int | None = None
    offload_to_disks: bool | None = None
    offload_parameters: bool | None = None
    sharded_exchange: ShardedExchange | None = None
    offloaded_layers: int | None = None
    exchange: str | None = None
    shards_gradients: bool | None = None
    experts: int | None = None
    expert_order: ExpertOrder | None = None
    expert_slots: ExpertSlots | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    mlp_hidden: int | None = None
    vocabulary: int | None = None
    positions: int | None = None
    window: tuple[int, ...] | None = None
    windowed_pattern: tuple[bool, ...] | None = None
    latent_sizes: tuple[int, ...] | None = None
    prediction_layers: int | None = None
    blocks: str | None = None
    linear_pattern: tuple[bool, ...] | None = None
    linear_sizes: tuple[int, ...] | None = None
    state_sizes: tuple[int, ...] | None = None
    indexer_sizes: tuple[int, ...] | None = None
    expert_latent: int | None = None
    active_experts: int | None = None
    expert_hidden: int | None = None
    shared_hidden: int | None = None
    sparse_pattern: tuple[bool, ...] | None = None
    router_groups: tuple[int, int] | None = None
    head_gradient_limit: int | None = None
    optimizer_copies: int | None = None
    recompute: str | None = None
    optimizer_states: OptimizerStates | None = None
    adapters: str | None = None
    schedule: PipelineSchedule | None = None
    connections: int | None = None


def claims_of(launch: Launch) -> Claims:
    """All claims that files could make of the launch, with the values that are true of it."""
    plan, degrees = launch.plan, launch.degrees
    placement, model = plan.placement, plan.architecture
    return Claims(
        world=launch.world,
        hosts=placement.hosts,
        first_host=placement.hosts[0],
        gpus_per_host=launch.gpus_per_host,
        gpus=launch.gpus,
        tensor=degrees.tensor,
        pipeline=degrees.pipeline,
        data=degrees.data,
        context=degrees.context,
        expert=degrees.expert,
        expert_tensor=degrees.expert_tensor,
        virtual_pipeline=degrees.virtual_pipeline,
        micro_batch_group=launch.micro_batch_group if plan.workload else None,
        rank_order=launch.configuration.rank_order,
        layers=launch.layers,
        stage_layers=launch.configuration.stage_layers,
        micro_batch=launch.configuration.micro_batch,
        global_batch=plan.workload.global_batch if plan.workload else None,
        sequence_length=plan.workload.sequence_length if plan.workload else None,
        sharding=_states_shared(launch.configuration.sharding),
        sharding_ranks=launch.configuration.sharding_ranks,
        optimizer_offload=launch.configuration.optimizer_offload,
        offload_to_disks=launch.configuration.offload_to_disks,
        offload_parameters=launch.configuration.offload_parameters,
        sharded_exchange=exchange_of_shards(launch) if plan.workload else None,
        offloaded_layers=launch.configuration.offloaded_layers,
        exchange=launch.configuration.exchange_words,
        shards_gradients=shards_gradients(launch.configuration.sharding, plan.workload) if plan.workload else None,
        experts=model.experts.count if model and model.experts else None,
        expert_order=expert_order(plan) if model and model.experts else None,
        expert_slots=plan.expert_slots,
        head_gradient_limit=plan.workload.framework.head_gradient_limit if plan.workload else None,
        recompute=launch.configuration.recomputation,
        optimizer_states=plan.workload.optimizer_states if plan.workload else None,
        adapters=adapters_said(plan.workload.adapters) if plan.workload else None,
        schedule=launch.configuration.schedule,
        optimizer_copies=_optimizer_copies(plan),
        connections=queues.count if (queues := connections(launch)) else None,
        **(_figures(model, launch) if model else {}),
    )


def _figures(model: Architecture, launch: Launch) -> dict[str, Any]:
    """The claims about the model."""
    workload, latent, experts = launch.plan.workload, model.latent_attention, model.experts
    found: dict[str, Any] = {
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "vocabulary": model.vocabulary,
        "windowed_pattern": model.windowed_pattern,
        "prediction_layers": model.prediction_layers,
        "mlp_hidden": model.mlp_hidden or (experts.hidden if experts else None),
        "positions": model.learned_positions or (workload.sequence_length if workload else None),
        "window": (model.sliding_window - 1, 0) if model.sliding_window else None,
    }
    if (linear := model.linear_attention) is not None:
        found["linear_pattern"] = tuple(kind.mixer is Mixer.LINEAR for kind in model.layer_pattern)
        heads, widths = (linear.key_heads, linear.value_heads), (linear.key_head_size, linear.value_head_size)
        found["linear_sizes"] = (*heads, *widths, linear.convolution)
    if (space := model.state_space) is not None:
        found["blocks"] = blocks_of(model)
        found["state_sizes"] = (space.heads, space.head_size, space.state, space.groups)
    if (sparse := model.sparse_attention) is not None:
        found["indexer_sizes"] = (sparse.heads, sparse.head_size, sparse.top_k)
    if latent is None:
        found["head_size"] = model.head_size
    else:
        sizes = (latent.nope_head_size, latent.rope_head_size, latent.value_head_size)
        found["latent_sizes"] = (latent.query_rank, latent.key_value_rank, *sizes)
    if experts is not None:
        found |= {
            "active_experts": experts.active,
            "expert_hidden": experts.hidden,
            "shared_hidden": experts.shared_hidden,
            "expert_latent": experts.latent,
            "sparse_pattern": model.sparse_pattern,
            "router_groups": (experts.router_groups, experts.active_groups),
        }
    return found


def adapters_said(adapters: Adapters | None) -> str:
    """Rank and modules of adapters as files say them, empty for none."""
    return "" if adapters is None else f"{adapters.rank} {','.join(sorted(adapters.modules))}"


def shards_gradients(sharding: Sharding, workload: TrainingWorkload) -> bool:
    """Whether gradients lie with the sharded states of the optimizer alone (ZeRO-2)."""
    owners = sharding is Sharding.OPTIMIZER and workload.framework.shards_gradients
    return owners or sharding is Sharding.GRADIENTS


def _states_shared(sharding: Sharding) -> Sharding:
    """The sharding as files say it that tell gradients by ``shards_gradients``."""
    return Sharding.OPTIMIZER if sharding is Sharding.GRADIENTS else sharding


def exchange_of_shards(launch: Launch) -> ShardedExchange:
    """How sharded parameters travel, plain where none are."""
    if launch.configuration.sharding is not Sharding.PARAMETERS:
        return ShardedExchange.PLAIN
    return launch.workload.framework.sharded_exchange


def _optimizer_copies(plan: Plan) -> int | None:
    """How often the states of the optimizer lie on the data ranks."""
    if plan.workload is None:
        return None
    return plan.configuration.optimizer_copies(plan.workload.framework.sharding_ranks)


def expert_order(plan: Plan) -> ExpertOrder:
    """The layers whose experts are not in their natural order, with what lies in each position, rank by rank."""
    if (slots := plan.expert_slots) is None:
        return ()
    natural = tuple(range(slots.count))
    rows = zip(slots.layers, slots.slots, strict=True)
    return tuple((layer, row) for layer, row in rows if row != natural)
