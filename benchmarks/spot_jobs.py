"""Spot nodes as a cluster, and weighted training jobs that run on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import cycle
from typing import Final

from app.cli.files import read_architecture
from benchmarks.replanning_cases import Kind
from benchmarks.spot_traces import SpotEvent
from cluster_models.cluster.catalogue import gpu_kind, node_kind
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, Node
from cluster_models.health.conditions import conditions_of
from cluster_models.health.degraded import degraded
from cluster_models.health.events import Entity, EntityKind, HealthEvent, HealthState
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.training.plan import Configuration, Plan
from cluster_models.training.workload import Choice, TrainingWorkload
from solver.predict import predict
from solver.problem import PlanningProblem, SearchOptions
from solver.search import plan

SOLD: Final = "p4d.24xlarge"
"""Node kind that each node of a trace is taken for; nothing is known of where it stands."""
SEQUENCE: Final = 4096
SEQUENCES_A_NODE: Final = 48
"""With 8 GPUs to a node many data sizes divide the batch."""
START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_PLAIN: Final = RecoveryPolicy(
    hands_over_state=True, checkpoint_interval_steps=20, restart_low_s=60.0, restart_high_s=120.0
)
_FREE: Final = replace(_PLAIN, may_change_batch=True)
KINDS: Final = (
    Kind("llama-3-8b", 4, 1.0, _PLAIN),
    Kind("llama-3-8b", 6, 2.0, replace(_FREE, memory_checkpoint=True)),
    Kind("mixtral-8x7b", 8, 1.5, replace(_FREE, memory_checkpoint=True)),
    Kind("llama-3-8b", 4, 3.0, replace(_FREE, optimizer_instances=2)),
    Kind("qwen2.5-7b", 4, 1.0, replace(_PLAIN, may_reroute=True)),
)
"""26 nodes together."""


def moment(at_s: float) -> datetime:
    """The time of day ``at_s`` seconds after the start."""
    return START + timedelta(seconds=at_s)


def cluster_at(events: Iterable[SpotEvent], names: Iterable[str], now_s: float) -> ClusterSnapshot:
    """The nodes of ``names`` as ``events`` leave them: those taken away have failed.

    A node that came back is another machine: it counts at once.
    """
    wanted = sorted(set(names))
    cluster = Cluster("spot", tuple(_node(name) for name in wanted), {_kind(): gpu_kind(_kind())}, source="made up")
    reports = [report_of(event) for event in events]
    conditions = conditions_of(reports, now=moment(now_s), hysteresis_s=0.0)
    return degraded(ClusterSnapshot("spot", cluster, ()), conditions)


def report_of(event: SpotEvent) -> HealthEvent:
    """The event as a report about the health of its node."""
    state = HealthState.RECOVERED if event.added else HealthState.FAILED
    number = f"{event.node}:{event.at_s:g}:{state}"
    return HealthEvent(Entity(EntityKind.NODE, event.node), state, moment(event.at_s), "spot", number)


def jobs_on(nodes: Sequence[str], kinds: Sequence[Kind]) -> tuple[RunningJob, ...]:
    """One job of each kind, on the first of ``nodes`` that are left."""
    found, used = [], 0
    for number, kind in enumerate(kinds):
        hosts = tuple(nodes[used : used + kind.nodes])
        used += kind.nodes
        made = _predicted(kind, hosts)
        name = f"{kind.model}-{number}"
        found.append(
            RunningJob(
                f"job-{number:02d}",
                name,
                made,
                kind.weight,
                kind.policy,
                wanted_gpus=made.configuration.degrees.gpus,
                wanted_batch=_workload(kind.nodes).global_batch,
            )
        )
    return tuple(found)


def kinds_for(jobs: int, nodes: int) -> tuple[Kind, ...]:
    """``jobs`` kinds in turn, as many as ``nodes`` nodes have room for."""
    found: list[Kind] = []
    for _, kind in zip(range(jobs), cycle(KINDS), strict=False):
        if sum(each.nodes for each in found) + kind.nodes <= nodes:
            found.append(kind)
    return tuple(found)


def _predicted(kind: Kind, hosts: tuple[str, ...]) -> Plan:
    cluster = cluster_at((), hosts, 0.0)
    asked = PlanningProblem(cluster, read_architecture(kind.model), _workload(kind.nodes))
    return predict(asked, _configuration(kind.model, kind.nodes), hosts=hosts)


@cache
def _configuration(model: str, nodes: int) -> Configuration:
    """The fastest that the planner knows for the model on so many nodes: no decision improves on it by the way."""
    cluster = cluster_at((), [f"node{index}" for index in range(nodes)], 0.0)
    workload = replace(_workload(nodes), choice=Choice.FASTEST)
    found = plan(PlanningProblem(cluster, read_architecture(model), workload), SearchOptions(time_limit_s=60.0))
    assert isinstance(found, Plan), f"{model} fits on {nodes} nodes"
    return found.configuration


def _workload(nodes: int) -> TrainingWorkload:
    return TrainingWorkload(sequence_length=SEQUENCE, global_batch=SEQUENCES_A_NODE * nodes)


def _kind() -> str:
    return node_kind(SOLD).gpu_kinds[0]


def _node(name: str) -> Node:
    sold = node_kind(SOLD)
    return Node(name, _kind(), sold.gpu_count, name, sold.nics, {})
