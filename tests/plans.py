"""A small, consistent plan, built by hand: two nodes of four GPUs, tp2 pp2 dp2, for tests of whatever shows it."""

from __future__ import annotations

from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus
from cluster_models.cluster.topology import Cluster, NicGroup, Node
from cluster_models.model.architecture import Architecture
from cluster_models.remarks import remark
from cluster_models.training.plan import (
    Alternative,
    Certificate,
    Confidence,
    Configuration,
    Degrees,
    NoPlan,
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
from cluster_models.units import GBYTE, GIB

SEQUENCE = 2048
GLOBAL_BATCH = 8
STEP_S = 0.5
PEAK_FLOPS = 989e12


def small_cluster() -> Cluster:
    """Nodes ``a`` and ``b`` with four H100 each and a spare ``c``."""
    kind = gpu_kinds()["H100-SXM5-80GB"]
    nics = NicGroup(count=4, bytes_per_s=50e9, fabric="infiniband")
    nodes = tuple(Node(name, kind.name, 4, name, nics, labels={"leaf": "l1"}) for name in ("a", "b", "c"))
    return Cluster("two-and-a-spare", nodes, {kind.name: kind}, source="built for tests")


def small_samples() -> tuple[Sample, ...]:
    """One good pair, one failed, one never measured."""
    common = {"tool": "nccl-tests", "collective": Collective.SEND_RECV, "message_bytes": 2.0**28}
    return tuple(
        Sample(
            source,
            destination,
            Direction.BOTH,
            ranks_per_node=4,
            pairs_active=1,
            status=SampleStatus.FAILED if rate is None else SampleStatus.OK,
            bytes_per_s=rate,
            **common,  # type: ignore[arg-type]  # three fields of three types
        )
        for source, destination, rate in (("a", "b", 40 * GBYTE), ("a", "c", None))
    )


def small_architecture() -> Architecture:
    """A dense model of four layers."""
    return Architecture("tiny-4", 4, 1024, 16, 4, 64, 2816, 32000, gated_mlp=True, tied_embeddings=False)


def small_workload() -> TrainingWorkload:
    """Eight sequences of 2048 tokens a step."""
    return TrainingWorkload(sequence_length=SEQUENCE, global_batch=GLOBAL_BATCH)


def small_configuration(*, layers: tuple[tuple[int, ...], ...] = ((2, 2),)) -> Configuration:
    """tp2 pp2 dp2 with ranks tensor first, then data, then pipeline."""
    return Configuration(
        degrees=Degrees(tensor=2, pipeline=2, data=2, virtual_pipeline=len(layers)),
        micro_batch=1,
        recompute=Recompute.SELECTIVE,
        sharding=Sharding.OPTIMIZER,
        rank_order=RankOrder.DATA_BEFORE_PIPELINE,
        stage_layers=layers,
    )


def small_placement() -> Placement:
    """Stage 0 on node ``b``, stage 1 on node ``a``."""
    hosts = ("b", "a")
    ranks = tuple(
        RankPlace(
            rank=rank,
            node=hosts[rank // 4],
            gpu=rank % 4,
            tensor=rank % 2,
            context=0,
            data=rank // 2 % 2,
            pipeline=rank // 4,
        )
        for rank in range(8)
    )
    return Placement(hosts=hosts, gpus_per_node=4, ranks=ranks)


def small_provenance() -> Provenance:
    """Where the plan came from."""
    return Provenance("0.1.0", "1", "two-and-a-spare", "0123456789abcdef", 0, 1, {"pulp": "3.3.0"})


def small_plan(*, layers: tuple[tuple[int, ...], ...] = ((2, 2),)) -> Plan:
    """The plan; every sum and product in it holds."""
    tokens_per_s = SEQUENCE * GLOBAL_BATCH / STEP_S
    flops = 6 * small_architecture().parameters() * tokens_per_s / 8
    return Plan(
        model="tiny-4",
        configuration=small_configuration(layers=layers),
        placement=small_placement(),
        time=TimeBreakdown(STEP_S, 0.3, 0.04, 0.0, 0.0, 0.08, 0.02, 0.05, 0.01),
        stages=(StageTime(0, 0.03, 0.06, 0.04), StageTime(1, 0.032, 0.064, 0.05)),
        memory=tuple(
            StageMemory(
                stage=stage,
                weights_bytes=8 * GIB,
                gradients_bytes=16 * GIB,
                optimizer_bytes=24 * GIB,
                activations_bytes=(12 - 4 * stage) * GIB,
                logits_bytes=stage * GIB,
                communication_bytes=1.5 * GIB,
                runtime_bytes=1.25 * GIB,
                fragmentation_bytes=0.75 * GIB,
                limit_bytes=75 * GIB,
            )
            for stage in range(2)
        ),
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / 8,
        model_flops_per_s_per_gpu=flops,
        mfu=flops / PEAK_FLOPS,
        certificate=Certificate(
            objective=STEP_S,
            bound=0.499,
            gap=0.002,
            stopped_by=StopReason.TIME_LIMIT,
            candidates_total=120,
            candidates_infeasible=20,
            candidates_pruned=90,
            candidates_placed=10,
            solver="cbc 2.10",
        ),
        warnings=(remark("estimated_links", links=1, of=3, flows=4, pairs=("a to c",)),),
        alternatives=(Alternative(small_configuration(), 0.55, 0.1, 70 * GIB, remark("as_fast")),),
        timeline=(
            TimelineEvent("F0", "forward", 0, 0, 0.0, 0.03),
            TimelineEvent("F0", "forward", 0, 1, 0.031, 0.032),
            TimelineEvent("B0", "backward", 0, 1, 0.063, 0.064),
            TimelineEvent("B0", "backward", 0, 0, 0.128, 0.06),
        ),
        unused_nodes=("c",),
        provenance=small_provenance(),
        architecture=small_architecture(),
        workload=small_workload(),
        confidence=Confidence(
            step_low_s=0.9 * STEP_S,
            step_high_s=1.25 * STEP_S,
            level=0.8,
            family="nemo-25.02 on H100, dense models",
            runs=31,
            outside=(remark("uncalibrated_size", size="micro_batch", value=9, low=1, high=8),),
        ),
        robustness=Robustness(
            draws=400,
            slow_link=0.05,
            spread_from=remark("drift_repeated_tests", repeats=18, same_class=True, agree=False),
            step=Drifted(0.49, 0.505, 0.58),
            rivals=(Rival(0, Drifted(0.55, 0.553, 0.56), 0.85),),
            mean_loss=0.01,
            worst_loss=0.2,
            safer=0,
        ),
    )


def small_no_plan() -> NoPlan:
    """A result that says nothing fits, by 3.5 GiB."""
    return NoPlan(
        reasons=(remark("no_legal_degrees", global_batch=64),),
        closest=small_configuration(),
        missing_bytes=3.5 * GIB,
        remedies=(remark("allow_recomputation"), remark("more_nodes", nodes=5, present=3)),
        provenance=small_provenance(),
    )
