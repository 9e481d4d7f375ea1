"""Plans of every shape that exports meet, by name, each with sums that hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from app.exports.contract import Export
from app.exports.options import Options
from app.exports.registry import EXPORTS
from cluster_models.model.experts import Experts
from cluster_models.model.layer_kinds import AttentionGate, Mixer, Mlp
from cluster_models.model.mixers import LatentAttention, LinearAttention, LinearRule, SparseAttention, StateSpace
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Configuration, Degrees, Placement, Plan, RankOrder, RankPlace
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import Recompute, Sharding
from solver.check.placement import coordinates
from tests.plans import small_plan

TRAINING: Final = (
    "megatron",
    "torchrun",
    "slurm",
    "hostfile",
    "nemo",
    "primus",
    "deepspeed",
    "torchtitan",
    "torchrun-nodes",
    "openmpi",
    "slurm-hostfile",
    "ray",
    "report",
)


def export(name: str) -> Export:
    """One format of a launch."""
    found = EXPORTS[name]
    assert isinstance(found, Export)
    return found


def text_of(name: str, plan: Plan, **options: Any) -> str:
    """All files of an export in one text."""
    return "\n".join(file.text for file in export(name).files(plan, Options(**options)))


def under(plan: Plan, name: str, **facts: Any) -> Plan:
    """The plan as priced for another generation, or for one that differs in some facts."""
    assert plan.workload is not None
    return replace(plan, workload=replace(plan.workload, framework=replace(framework(name), **facts)))


def shaped(
    degrees: Degrees,
    layers: tuple[tuple[int, ...], ...],
    *,
    size: int = 4,
    first_gpu: int = 0,
    experts: int = 0,
    order: RankOrder = RankOrder.DATA_BEFORE_PIPELINE,
    sharding: Sharding = Sharding.OPTIMIZER,
) -> Plan:
    """A plan on hosts that are not in alphabetical order, with ``size`` GPUs of each from ``first_gpu``."""
    plan = small_plan()
    assert plan.architecture is not None
    configuration = Configuration(degrees, 1, Recompute.FULL, sharding, order, layers)
    hosts = ("gpu-7.rack2", "gpu-01", "gpu-5", "gpu-02")[: degrees.gpus // size]
    ranks = []
    for rank in range(degrees.gpus):
        tensor, context, data, pipeline = coordinates(rank, configuration)
        gpu = first_gpu + rank % size
        ranks.append(RankPlace(rank, hosts[rank // size], gpu, tensor, context, data, pipeline))
    count = sum(map(sum, layers))
    model = replace(plan.architecture, layers=count, experts=Experts(experts, 2, 512) if experts else None)
    # From the last expert down, in one layer only: no rank holds what Megatron would give it there.
    natural = tuple(range(experts))
    rows = tuple(natural[::-1] if layer == 1 else natural for layer in range(count))
    return replace(
        plan,
        architecture=model,
        configuration=configuration,
        placement=Placement(hosts, size, tuple(ranks)),
        expert_slots=ExpertSlots(tuple(range(count)), rows, experts, degrees.expert) if experts else None,
    )


def whole_model() -> Plan:
    """A plan of a model with all that arguments say of one: dense layers before sparse ones, shared experts."""
    degrees = Degrees(tensor=2, pipeline=2, data=4, expert=4, virtual_pipeline=2)
    plan = shaped(degrees, ((2, 2), (2, 1)), experts=8)
    assert plan.architecture is not None
    model = replace(
        plan.architecture,
        experts=Experts(8, 3, 512, shared_hidden=1024, dense_layers=2),
        attention_bias=True,
        prediction_layers=1,
        sliding_window=128,
        window_period=2,
    )
    natural = tuple(range(8))
    slots = ExpertSlots(tuple(range(2, 7)), (natural[::-1], *[natural] * 4), 8, 4)
    selective = replace(plan.configuration, recompute=Recompute.SELECTIVE)
    plan = replace(plan, architecture=model, configuration=selective, expert_slots=slots)
    return under(plan, "megatron-bridge-26.06")


def unlike(**parts: Any) -> Plan:
    """A plan of a model with parts that plain transformers lack, its stages uneven where they can be."""
    plan = shaped(Degrees(tensor=2, pipeline=2, data=2), ((3, 5),))
    assert plan.architecture is not None
    return under(replace(plan, architecture=replace(plan.architecture, **parts)), "megatron-bridge-26.06")


def blocks() -> Plan:
    """A plan of a hybrid model whose layers are blocks: two rounds of state space, MLP, attention and experts."""
    plan = shaped(Degrees(tensor=2, pipeline=2, data=4, expert=4, virtual_pipeline=2), ((2, 2), (3, 1)), experts=8)
    assert plan.architecture is not None
    assert plan.architecture.experts is not None
    model = replace(
        plan.architecture,
        experts=replace(plan.architecture.experts, latent=64),
        mixers=(Mixer.STATE_SPACE, Mixer.NONE, Mixer.FULL, Mixer.NONE),
        mlps=(Mlp.NONE, Mlp.DENSE, Mlp.NONE, Mlp.EXPERTS),
        state_space=StateSpace(heads=32, head_size=64, state=128, groups=8),
    )
    slots = ExpertSlots((3, 7), (tuple(range(8)),) * 2, 8, 4)
    return under(replace(plan, architecture=model, expert_slots=slots), "megatron-bridge-26.06")


def even_blocks() -> Plan:
    """A plan of state spaces and MLPs, as many blocks on each rank, for a release without cut patterns."""
    plan = shaped(Degrees(tensor=2, pipeline=2, data=2), ((2, 2),))
    assert plan.architecture is not None
    model = replace(
        plan.architecture,
        mixers=(Mixer.STATE_SPACE, Mixer.NONE),
        mlps=(Mlp.NONE, Mlp.DENSE),
        state_space=StateSpace(heads=24, head_size=64, state=128, groups=8),
    )
    return under(replace(plan, architecture=model), "megatron-core-0.15")


DELTA_NET: Final = LinearAttention(LinearRule.GATED_DELTA, 16, 32, 128, 128, convolution=4)


def larger_groups() -> Plan:
    """Five micro-batches on two pipeline ranks with two virtual stages: groups of three and two."""
    plan = shaped(Degrees(tensor=2, pipeline=2, data=2, virtual_pipeline=2), ((2, 2), (2, 2)))
    assert plan.workload is not None
    return replace(plan, workload=replace(plan.workload, global_batch=10))


def scheduled(schedule: PipelineSchedule, layers: tuple[tuple[int, ...], ...], rounds: int = 4) -> Plan:
    """A plan of this schedule on two pipeline ranks, with ``rounds`` micro-batches in each."""
    plan = shaped(Degrees(tensor=2, pipeline=2, data=2, virtual_pipeline=len(layers)), layers)
    assert plan.workload is not None
    plan = replace(
        plan,
        configuration=replace(plan.configuration, schedule=schedule),
        workload=replace(plan.workload, global_batch=2 * rounds),
    )
    return under(plan, "torchtitan-2025")


V_OF_STAGES: Final = scheduled(PipelineSchedule.ZB_V, ((1, 2), (2, 1)))
BREADTH_FIRST: Final = scheduled(PipelineSchedule.GPIPE, ((2, 2), (2, 2)))


def offloaded(framework: str, sharding: Sharding = Sharding.OPTIMIZER) -> Plan:
    """A plan of eight data ranks with all optimizer states in the nodes' memory."""
    plan = under(shaped(Degrees(data=8), ((6,),), sharding=sharding), framework)
    return replace(plan, configuration=replace(plan.configuration, optimizer_offload=100))


def waiting(framework: str) -> Plan:
    """A plan of eight data ranks with the activations of five layers of six in the nodes' memory."""
    plan = under(shaped(Degrees(data=8), ((6,),)), framework)
    return replace(plan, configuration=replace(plan.configuration, recompute=Recompute.NONE, offloaded_layers=5))


def hierarchical(framework: str) -> Plan:
    """A plan of eight context ranks, four of which exchange heads."""
    plan = under(shaped(Degrees(context=8), ((6,),)), framework)
    exchange = {"context_exchange": ContextExchange.HIERARCHICAL, "head_ranks": 4}
    return replace(plan, configuration=replace(plan.configuration, **exchange))


PLANS: Final = {
    "dense": shaped(Degrees(tensor=2, pipeline=2, data=2), ((3, 3),)),
    "uneven": shaped(Degrees(tensor=2, pipeline=4, data=2), ((2, 3, 3, 2),)),
    "virtual": shaped(Degrees(tensor=2, pipeline=2, data=2, virtual_pipeline=3), ((2, 2), (2, 2), (2, 2))),
    "uneven virtual": shaped(Degrees(tensor=2, pipeline=2, data=2, virtual_pipeline=2), ((1, 2), (2, 1))),
    "larger groups": larger_groups(),
    "empty stage": under(shaped(Degrees(tensor=2, pipeline=4, data=2), ((5, 0, 6, 7),)), "megatron-core-0.15"),
    "any stages": under(
        shaped(Degrees(tensor=2, pipeline=2, data=2, virtual_pipeline=3), ((1, 2), (3, 2), (2, 1))),
        "megatron-core-0.15",
    ),
    "experts": shaped(Degrees(tensor=2, data=4, expert=4), ((6,),), experts=8),
    "few experts": shaped(Degrees(tensor=4, data=4, expert=2), ((6,),), experts=8),
    "cut experts": shaped(Degrees(tensor=2, data=8, expert=4, expert_tensor=2), ((6,),), experts=8),
    "whole model": whole_model(),
    "context": shaped(Degrees(tensor=2, context=2, data=2), ((6,),)),
    "pipeline first": shaped(Degrees(pipeline=2, data=4), ((3, 3),), order=RankOrder.PIPELINE_BEFORE_DATA),
    "beside others": shaped(Degrees(tensor=2, data=2), ((6,),), size=2, first_gpu=6),
    "one GPU": shaped(Degrees(), ((6,),), size=1),
    "replicas": shaped(Degrees(data=8), ((6,),), sharding=Sharding.NONE),
    "shards": shaped(Degrees(tensor=2, data=8), ((6,),), sharding=Sharding.PARAMETERS),
}

UNLIKE: Final = {
    "delta net": unlike(
        mixers=(Mixer.LINEAR, Mixer.LINEAR, Mixer.LINEAR, Mixer.FULL),
        linear_attention=DELTA_NET,
        attention_gate=AttentionGate.ELEMENT,
    ),
    "indexer": unlike(
        latent_attention=LatentAttention(256, 128, 64, 64, 64), sparse_attention=SparseAttention(16, 64, 512)
    ),
    "blocks": blocks(),
    "even blocks": even_blocks(),
}
"""Plans of models that are not plain transformers."""
