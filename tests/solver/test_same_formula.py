"""The planner on a cluster of like nodes, and the price of the same run without a cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.serialization import make_snapshot
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.cluster.topology import Cluster, NicGroup, Node
from cluster_models.model.catalogue import catalogue_models
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK, Framework
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from cluster_models.units import GBIT
from solver.costs.calibration import calibration_of
from solver.degrees.layout import balanced_layout
from solver.predict import predict
from solver.problem import PlanningProblem
from solver.runs import predict_run
from tests.solver.cost_cases import H100

RATE = 400 * GBIT
WORKLOAD = TrainingWorkload(sequence_length=4096, global_batch=64, memory_headroom=0.0)


def a_cluster(count: int, gpu: GpuKind = H100, gpus: int = 8, fabric: str = "infiniband") -> Cluster:
    """``count`` nodes of eight H100 (or others) with a 400 Gb/s card each, nothing measured."""
    nics = NicGroup(count=gpus, bytes_per_s=RATE, fabric=fabric)
    names = [f"n{i}" for i in range(count)]
    nodes = tuple(Node(name, gpu.name, gpus, name, nics, labels={"leaf": "one"}) for name in names)
    return Cluster("alike", nodes, {gpu.name: gpu}, source="made up")


@pytest.mark.parametrize(
    ("model", "degrees"),
    [
        ("llama-3-70b", Degrees(tensor=8, pipeline=4)),
        ("llama-3-70b", Degrees(tensor=4, pipeline=4, data=2, virtual_pipeline=5)),
        ("llama-3-70b", Degrees(tensor=2, pipeline=8, data=2, context=2)),
        ("llama-3-8b", Degrees(tensor=2, data=16)),
        ("mixtral-8x7b", Degrees(pipeline=4, data=8, expert=8)),
    ],
)
def test_a_plan_on_like_nodes_takes_what_the_scored_formula_says(model: str, degrees: Degrees) -> None:
    """So the errors found on measured runs are those of plans; one flow pattern differs by half a percent."""
    architecture = catalogue_models()[model]
    layout = balanced_layout(architecture, 4096, degrees.pipeline, degrees.virtual_pipeline)
    configuration = Configuration(
        degrees, 1, Recompute.NONE, Sharding.OPTIMIZER, RankOrder.DATA_BEFORE_PIPELINE, layout
    )
    snapshot = make_snapshot(a_cluster(degrees.gpus // 8), ())
    plan = predict(PlanningProblem(snapshot, architecture, WORKLOAD), configuration)
    run = TrainingRun("run", architecture, WORKLOAD, configuration, H100, 8, 8, RATE)
    assert plan.time.step_s == pytest.approx(predict_run(run).step_s, rel=0.01)


def test_transfers_hold_up_hosts_that_move_them_and_wait_for_them() -> None:
    """Plans and the scored formula alike: over EFA, not over InfiniBand, and where sends block."""
    architecture = catalogue_models()["llama-3-8b"]
    layout = balanced_layout(architecture, 4096, 2, 1)
    configuration = Configuration(
        Degrees(tensor=8, pipeline=2), 1, Recompute.NONE, Sharding.NONE, RankOrder.DATA_BEFORE_PIPELINE, layout
    )

    def compute_s(framework: Framework, fabric: str) -> float:
        workload = replace(WORKLOAD, framework=framework)
        run = TrainingRun("run", architecture, workload, configuration, H100, 8, 8, RATE, fabric=fabric)
        snapshot = make_snapshot(a_cluster(2, fabric=fabric), ())
        plan = predict(PlanningProblem(snapshot, architecture, workload), configuration)
        assert plan.time.compute_s == pytest.approx(predict_run(run).compute_s, rel=0.01)
        return plan.time.compute_s

    waiting = replace(DEFAULT_FRAMEWORK, blocking_transfers=True)
    assert compute_s(waiting, "efa") > 1.2 * compute_s(waiting, "infiniband")
    assert compute_s(DEFAULT_FRAMEWORK, "efa") == compute_s(DEFAULT_FRAMEWORK, "infiniband")


def test_rings_without_peer_access_are_as_slow_in_a_plan_as_in_the_scored_formula() -> None:
    """Four T4 of a node exchange gradients through the host's memory, which the curves of their links leave out."""
    gpu, workload = gpu_kind("T4"), replace(WORKLOAD, precision=Precision.FP16)
    assert calibration_of(gpu, workload.framework).domain_share < 0.5
    architecture = catalogue_models()["llama-3-8b"]
    layout = balanced_layout(architecture, 4096, 1, 1)
    configuration = Configuration(
        Degrees(data=4), 1, Recompute.NONE, Sharding.NONE, RankOrder.DATA_BEFORE_PIPELINE, layout
    )
    plan = predict(PlanningProblem(make_snapshot(a_cluster(1, gpu, 4), ()), architecture, workload), configuration)
    run = TrainingRun("run", architecture, workload, configuration, gpu, 4, 4, RATE)
    assert plan.time.data_exposed_s == pytest.approx(predict_run(run).exposed_data_s, rel=1e-6)
    assert plan.time.data_exposed_s > 1.0
