"""Small clusters with jobs on them, and what is left of them after failures: tests build on these.

``cluster(8, leaf_nodes=4)`` has nodes ``n00`` to ``n07`` on leaves ``leaf-0`` and ``leaf-1``; links are known by
class alone.  ``job`` predicts the plan that the job runs by, on the healthy cluster; equal calls cost once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Final

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import NodeState
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.model.architecture import Architecture
from cluster_models.training.plan import Configuration, Degrees, Plan, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.predict import predict
from solver.problem import PlanningProblem
from solver.replanning.problem import ReplanProblem
from tests.cluster_models.clusters import cluster_of, host
from tests.solver.problems import DENSE, SPARSE

SEQUENCE: Final = 2048
BATCH: Final = 48
"""Divides by 1, 2, 3, 4, 6, 8, 12, 16 replicas; not by 5 or 7."""
MODELS: Final = (DENSE, SPARSE)


def cluster(nodes: int, *, leaf_nodes: int = 4, gpus: int = 2, gpu: str = "H100-SXM5-80GB") -> ClusterSnapshot:
    """``nodes`` equal nodes, ``leaf_nodes`` on a leaf, one network card for each GPU."""
    names = [f"n{index:02d}" for index in range(nodes)]
    hosts = [
        host(name, leaf=f"leaf-{index // leaf_nodes}", gpu=gpu, gpus=gpus, cards=gpus)
        for index, name in enumerate(names)
    ]
    return ClusterSnapshot(f"{nodes}-by-{leaf_nodes}", cluster_of(hosts), ())


def names(snapshot: ClusterSnapshot, first: int = 0, count: int | None = None) -> tuple[str, ...]:
    """Names of ``count`` nodes from ``first`` on."""
    every = [node.name for node in snapshot.cluster.nodes]
    return tuple(every[first:] if count is None else every[first : first + count])


def job(
    name: str,
    snapshot: ClusterSnapshot,
    hosts: Sequence[str],
    *,
    model: Architecture = DENSE,
    weight: float = 1.0,
    batch: int = BATCH,
    recovery: RecoveryPolicy | None = None,
    gpus_per_node: int | None = None,
    **degrees: int,
) -> RunningJob:
    """A job on ``hosts``: ``degrees`` as stated, data parallel over the rest of their GPUs."""
    per_node = gpus_per_node or snapshot.cluster.node(hosts[0]).gpu_count
    others = degrees.get("tensor", 1) * degrees.get("pipeline", 1) * degrees.get("context", 1)
    shape = Degrees(**{"data": len(hosts) * per_node // others, **degrees})
    plan = _plan(snapshot, tuple(hosts), per_node, model, shape, batch)
    return RunningJob(f"job-{name}", name, plan, weight, recovery or RecoveryPolicy())


@cache
def _plan(
    snapshot: ClusterSnapshot,
    hosts: tuple[str, ...],
    gpus_per_node: int,
    model: Architecture,
    degrees: Degrees,
    batch: int,
) -> Plan:
    workload = TrainingWorkload(
        sequence_length=SEQUENCE, global_batch=batch, recompute=(Recompute.NONE,), sharding=(Sharding.OPTIMIZER,)
    )
    stages = degrees.pipeline
    layers = tuple(model.layers // stages + (stage < model.layers % stages) for stage in range(stages))
    order = RankOrder.DATA_BEFORE_PIPELINE
    configuration = Configuration(degrees, 1, Recompute.NONE, Sharding.OPTIMIZER, order, (layers,))
    asked = PlanningProblem(snapshot, model, workload)
    return predict(asked, configuration, hosts=hosts, gpus_per_node=gpus_per_node)


def after(
    snapshot: ClusterSnapshot,
    *,
    failed: Collection[str] = (),
    draining: Collection[str] = (),
    slow: Mapping[str, float] | None = None,
    lost_gpus: Mapping[str, tuple[int, ...]] | None = None,
) -> ClusterSnapshot:
    """The cluster after failures; ``slow`` states compute slowdowns, ``lost_gpus`` the failed GPUs of nodes."""
    states = dict.fromkeys(draining, NodeState.DRAINING) | dict.fromkeys(failed, NodeState.FAILED)
    states = dict.fromkeys(slow or {}, NodeState.DEGRADED) | states
    nodes = tuple(
        replace(
            node,
            state=states.get(node.name, node.state),
            compute_slowdown=(slow or {}).get(node.name, node.compute_slowdown),
            gpus_in_use=(lost_gpus or {}).get(node.name, node.gpus_in_use),
        )
        for node in snapshot.cluster.nodes
    )
    return replace(snapshot, id=f"{snapshot.id}-after", cluster=replace(snapshot.cluster, nodes=nodes))


def replan(
    snapshot: ClusterSnapshot, jobs: Sequence[RunningJob], *, spares: Sequence[str] | None = None, **changes: Any
) -> ReplanProblem:
    """The problem on ``snapshot`` as it is now; the usable nodes of no job are the spares where none are named."""
    held = {name for job in jobs for name in job.nodes}
    if spares is None:
        spares = [node.name for node in snapshot.cluster.nodes if node.usable and node.name not in held]
    return ReplanProblem(snapshot, tuple(jobs), tuple(spares), **changes)


SAME_SHAPE: Final = RecoveryPolicy(may_reshape=False)
"""Decisions about such jobs need no search of other shapes."""


def one_lost(*, spares: int = 2, recovery: RecoveryPolicy | None = None) -> ReplanProblem:
    """One job, tensor 2 x data 4 on four nodes of two GPUs; its second node failed."""
    whole = cluster(4 + spares, leaf_nodes=4 + spares)
    return replan(
        after(whole, failed=["n01"]), [job("one", whole, names(whole, 0, 4), tensor=2, recovery=recovery)]
    )


def four_jobs(
    *,
    failed: Collection[str] = ("n00", "n04", "n08", "n12"),
    spares: int = 2,
    recovery: RecoveryPolicy | None = None,
) -> ReplanProblem:
    """Four jobs of four nodes with weights 1 to 4 and pipelines of two, each on a leaf; then the spares."""
    whole = cluster(16 + spares)
    jobs = [
        job(
            f"j{index}",
            whole,
            names(whole, 4 * index, 4),
            weight=1.0 + index,
            tensor=2,
            pipeline=2,
            recovery=recovery,
        )
        for index in range(4)
    ]
    return replan(after(whole, failed=failed), jobs)
