"""Running jobs and new plans made by hand: any shape on any hosts, without a search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cluster_models.cluster.topology import Node
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.model.architecture import Architecture
from cluster_models.training.plan import Configuration, Degrees, Plan, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.answer.assemble import place_ranks
from solver.replanning.problem import ReplanProblem
from tests.cluster_models.clusters import host, snapshot
from tests.solver.hand_made import hand_made_plan
from tests.solver.problems import DENSE


def hosts_of(count: int, *, gpus: int = 8, per_leaf: int = 1000) -> tuple[Node, ...]:
    """Equal nodes ``n0``, ``n1``, ..., so many under each leaf."""
    return tuple(host(f"n{k}", gpus=gpus, cards=gpus, leaf=f"leaf-{k // per_leaf}") for k in range(count))


def shape(
    model: Architecture = DENSE,
    *,
    sharding: Sharding = Sharding.OPTIMIZER,
    order: RankOrder = RankOrder.DATA_BEFORE_PIPELINE,
    **degrees: int,
) -> Configuration:
    """A configuration with its layers dealt out as evenly as they go, the last stages taking the odd ones."""
    sizes = Degrees(**degrees)
    chunks = sizes.pipeline * sizes.virtual_pipeline
    counts = [model.layers // chunks + (chunk >= chunks - model.layers % chunks) for chunk in range(chunks)]
    rows = tuple(
        tuple(counts[v * sizes.pipeline : (v + 1) * sizes.pipeline]) for v in range(sizes.virtual_pipeline)
    )
    return Configuration(sizes, 1, Recompute.NONE, sharding, order, rows)


def plan_on(
    hosts: Sequence[str],
    configuration: Configuration,
    *,
    gpus: int = 8,
    model: Architecture = DENSE,
    **changes: Any,
) -> Plan:
    """The plan of ``configuration`` on ``hosts``, each offering ``gpus``; 1 s a step of 65,536 tokens."""
    base = hand_made_plan()
    return replace(
        base,
        model=model.name,
        configuration=configuration,
        placement=place_ranks(configuration, tuple(hosts), min(gpus, configuration.degrees.gpus)),
        time=replace(base.time, step_s=1.0),
        tokens_per_s=65536.0,
        architecture=model,
        workload=TrainingWorkload(sequence_length=2048, global_batch=32),
        **changes,
    )


def job_on(
    hosts: Sequence[str], configuration: Configuration, *, gpus: int = 8, model: Architecture = DENSE, **policy: Any
) -> RunningJob:
    """A job that runs by such a plan."""
    return RunningJob(
        "job",
        "job",
        plan_on(hosts, configuration, gpus=gpus, model=model),
        1.0,
        RecoveryPolicy(**{"hands_over_state": True, **policy}),
    )


def replanning(job: RunningJob, nodes: Sequence[Node]) -> ReplanProblem:
    """The problem of that job alone."""
    return ReplanProblem(snapshot(nodes), (job,), spares=())


def gpus_of(*hosts: str, gpus: int = 8) -> frozenset[tuple[str, int]]:
    """All GPUs of ``hosts``."""
    return frozenset((name, gpu) for name in hosts for gpu in range(gpus))
