"""A problem and its plan, written by hand from numbers that can be checked on paper.

Two nodes of four GPUs carry tensor 2, data 2, pipeline 2; a third node is spare, one is broken, one avoided.
A forward takes 1 s and a backward 2 s on either stage, transfers nothing, the optimizer 1 s.
"""

from __future__ import annotations

from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, NicGroup, Node, NodeState
from cluster_models.model.architecture import Architecture
from cluster_models.remarks import remark
from cluster_models.training.plan import (
    Alternative,
    Certificate,
    Configuration,
    Degrees,
    Placement,
    Plan,
    Provenance,
    RankOrder,
    RankPlace,
    StopReason,
    TimelineEvent,
)
from cluster_models.training.rank_costs import StageMemory, StageTime, TimeBreakdown
from cluster_models.training.robustness import Drifted, Rival, Robustness
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.problem import PlanningProblem

GPU = GpuKind(
    name="small",
    vendor="test",
    memory_bytes=1e6,
    memory_bytes_per_s=1e9,
    peak_flops={Precision.BF16: 1e9},
    achievable_fraction=0.5,
    scale_up_link="nvlink",
    scale_up_bytes_per_s=1e9,
    scale_up_domain_gpus=4,
    power_watts=1.0,
    price_usd_per_hour=2.0,
    source="made up for tests",
    achievable_source="made up for tests",
    verified=False,
)
CONFIGURATION = Configuration(
    degrees=Degrees(tensor=2, pipeline=2, data=2),
    micro_batch=2,
    recompute=Recompute.NONE,
    sharding=Sharding.OPTIMIZER,
    rank_order=RankOrder.DATA_BEFORE_PIPELINE,
    stage_layers=((2, 2),),
)
SCHEDULE = {
    0: {"F0": (0, 1), "F1": (1, 2), "B0": (4, 6), "B1": (7, 9), "optimizer": (9, 10)},
    1: {"F0": (1, 2), "B0": (2, 4), "F1": (4, 5), "B1": (5, 7), "optimizer": (7, 8)},
}
CATEGORY = {"F": "forward", "B": "backward", "o": "optimizer"}


def hand_made_problem() -> PlanningProblem:
    """Four layers of width 64 on five nodes, eight sequences of 32 tokens a step."""
    states = {"a": NodeState.READY, "b": NodeState.READY, "spare": NodeState.READY}
    states |= {"broken": NodeState.FAILED, "avoided": NodeState.READY}
    nodes = tuple(
        Node(name, "small", 4, nvlink_domain=name, nics=NicGroup(1, 1e9), state=state)
        for name, state in states.items()
    )
    model = Architecture(
        name="tiny",
        layers=4,
        hidden=64,
        heads=4,
        kv_heads=2,
        head_size=16,
        mlp_hidden=128,
        vocabulary=256,
        gated_mlp=True,
        tied_embeddings=False,
    )
    workload = TrainingWorkload(
        sequence_length=32,
        global_batch=8,
        recompute=(Recompute.NONE,),
        sharding=(Sharding.NONE, Sharding.OPTIMIZER),
        memory_headroom=0.1,
        pinned={"tensor": 2},
        forbidden={"context": (4,)},
        max_gpus=8,
        avoid_nodes=("avoided",),
    )
    snapshot = ClusterSnapshot("snapshot-1", Cluster("test", nodes, {"small": GPU}), ())
    return PlanningProblem(snapshot, model, workload)


def hand_made_plan() -> Plan:
    """The plan: 256 tokens in 10 s, within 5 % of the bound."""
    flops_per_token = 6 * (4 * 36864 + 64 * 256) + 6 * 4 * (2 * 64) * 32 / 2
    flops = flops_per_token * 25.6 / 8
    return Plan(
        model="tiny",
        configuration=CONFIGURATION,
        placement=Placement(hosts=("a", "b"), gpus_per_node=4, ranks=_ranks()),
        time=TimeBreakdown(
            step_s=10.0,
            compute_s=6.0,
            tensor_s=0.0,
            context_s=0.0,
            expert_s=0.0,
            pipeline_bubble_s=3.0,
            pipeline_transfer_s=0.0,
            data_exposed_s=0.0,
            optimizer_s=1.0,
        ),
        stages=tuple(StageTime(stage, 1.0, 2.0, 0.0) for stage in range(2)),
        memory=_memory(),
        tokens_per_s=25.6,
        tokens_per_s_per_gpu=3.2,
        model_flops_per_s_per_gpu=flops,
        mfu=flops / 1e9,
        certificate=_certificate(),
        warnings=(),
        alternatives=(
            Alternative(CONFIGURATION, step_s=11.0, slower_by=0.1, peak_memory_bytes=5e5, reason=remark("as_fast")),
        ),
        timeline=_timeline(),
        unused_nodes=("spare",),
        provenance=Provenance("0", "0", "test", "snapshot-1", seed=0, effort=1, solver_versions={}),
        robustness=Robustness(
            draws=100,
            slow_link=0.1,
            spread_from=remark("drift_published"),
            step=Drifted(9.5, 10.0, 12.0),
            rivals=(Rival(0, Drifted(10.9, 11.0, 11.2), plan_ahead=0.75),),
            mean_loss=0.02,
            worst_loss=0.2,
            safer=0,
        ),
    )


def _ranks() -> tuple[RankPlace, ...]:
    """Node ``a`` is the first pipeline stage; inside it tensor varies fastest, then data."""
    return tuple(
        RankPlace(
            rank=4 * pipeline + 2 * data + tensor,
            node="ab"[pipeline],
            gpu=2 * data + tensor,
            tensor=tensor,
            context=0,
            data=data,
            pipeline=pipeline,
        )
        for pipeline in range(2)
        for data in range(2)
        for tensor in range(2)
    )


def _memory() -> tuple[StageMemory, ...]:
    """Two layers of 36864/2 matrix and 128 norm parameters, and half of a 64 x 256 table, 2 bytes each."""
    parameters = 2 * (36864 / 2 + 128) + 64 * 256 / 2
    return tuple(
        StageMemory(
            stage=stage,
            weights_bytes=2 * (parameters + final_norm),
            gradients_bytes=1.8e5,
            optimizer_bytes=2.7e5,
            activations_bytes=1e5,
            logits_bytes=1e4 * stage,
            communication_bytes=1e4,
            runtime_bytes=1e4,
            fragmentation_bytes=1e4,
            limit_bytes=9e5,
        )
        for stage, final_norm in enumerate((0, 64))
    )


def _certificate() -> Certificate:
    return Certificate(
        objective=10.0,
        bound=9.5,
        gap=0.05,
        stopped_by=StopReason.TIME_LIMIT,
        candidates_total=100,
        candidates_infeasible=30,
        candidates_pruned=20,
        candidates_placed=5,
        solver="cbc",
    )


def _timeline() -> tuple[TimelineEvent, ...]:
    return tuple(
        TimelineEvent(
            name=name,
            category=CATEGORY[name[0]],
            replica=replica,
            track=track,
            start_s=float(start),
            duration_s=float(end - start),
        )
        for replica in range(2)
        for track, events in SCHEDULE.items()
        for name, (start, end) in events.items()
    )
