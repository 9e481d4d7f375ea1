"""Made-up clusters full of jobs, and what a lost leaf makes of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from typing import Final

import numpy as np

from app.cli.files import read_architecture
from benchmarks.large_clusters import CARDS, GPU, HOST_GPUS, LEAF_NODES, ZONE_LEAVES
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, Node, NodeState
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.training.plan import Configuration, Plan
from cluster_models.training.workload import TrainingWorkload
from solver.predict import predict
from solver.problem import PlanningProblem, SearchOptions
from solver.replanning.problem import ReplanProblem
from solver.search import plan

SEQUENCE: Final = 8192
SEQUENCES_A_NODE: Final = 16
SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Kind:
    """Model of a job, on how many nodes, and what may be done with it."""

    model: str
    nodes: int
    weight: float
    policy: RecoveryPolicy


_PLAIN = RecoveryPolicy(hands_over_state=True)
_FREE = replace(_PLAIN, may_change_batch=True, may_reroute=True)
_COPIES = replace(_PLAIN, may_change_batch=True, optimizer_instances=2)
KINDS: Final = (
    Kind("llama-3-8b", 2, 1.0, _PLAIN),
    Kind("llama-3-8b", 4, 2.0, _FREE),
    Kind("mixtral-8x7b", 4, 1.0, _FREE),
    Kind("llama-3-8b", 6, 1.0, _COPIES),
    Kind("llama-3-70b", 8, 1.5, _FREE),
    Kind("llama-3-70b", 12, 3.0, _PLAIN),
)
"""36 nodes together."""
SMALLER: Final = (KINDS[0], KINDS[1], KINDS[2], KINDS[0], KINDS[3], KINDS[4])
"""26 nodes together."""


def cluster_of(nodes: int) -> ClusterSnapshot:
    """Nodes of 8 H100 in leaves and zones, known by class alone, all well."""
    listed = []
    for index in range(nodes):
        leaf = index // LEAF_NODES
        labels = {"leaf": f"leaf{leaf:03d}", "zone": f"zone{leaf // ZONE_LEAVES}"}
        name = f"n{index:04d}"
        listed.append(Node(name, GPU, HOST_GPUS, name, CARDS, labels))
    cluster = Cluster(f"made-up-{nodes}", tuple(listed), {GPU: gpu_kind(GPU)}, source="made up")
    return ClusterSnapshot(f"well-{nodes}", cluster, ())


@dataclass(frozen=True, slots=True)
class Crowd:
    """A cluster that is well, the jobs on it, and its free nodes in the order in which they serve as spares."""

    whole: ClusterSnapshot
    jobs: tuple[RunningJob, ...]
    free: tuple[str, ...]


def crowd(jobs: int, nodes: int, kinds: Sequence[Kind]) -> Crowd:
    """``jobs`` jobs of ``kinds`` in turn.

    They sit where there was room when they came: their nodes are drawn from all over the cluster, so that a leaf
    serves many of them.
    """
    whole = cluster_of(nodes)
    names = [node.name for node in whole.cluster.nodes]
    order = [names[index] for index in np.random.default_rng(SEED).permutation(nodes)]
    running, used = [], 0
    for number, kind in zip(range(jobs), cycle(kinds), strict=False):
        running.append(_job(number, kind, whole, sorted(order[used : used + kind.nodes])))
        used += kind.nodes
    return Crowd(whole, tuple(running), tuple(order[used:]))


def leaf_lost(jobs: int, nodes: int, lost: int, *, spares: int, kinds: Sequence[Kind] = KINDS) -> ReplanProblem:
    """A crowd, then ``lost`` nodes of the second leaf down; ``spares`` others may serve."""
    site = crowd(jobs, nodes, kinds)
    down = {node.name for node in site.whole.cluster.nodes[LEAF_NODES : LEAF_NODES + lost]}
    free = [name for name in site.free if name not in down]
    return _without(site.whole, down, site.jobs, sorted(free[:spares]))


def one_node_lost() -> ReplanProblem:
    """A job of eight nodes on one leaf with its spare, and one of its nodes down."""
    whole = cluster_of(LEAF_NODES)
    names = [node.name for node in whole.cluster.nodes]
    job = _job(0, KINDS[4], whole, names[: KINDS[4].nodes])
    return _without(whole, {names[3]}, [job], names[KINDS[4].nodes : KINDS[4].nodes + 1])


def _without(
    whole: ClusterSnapshot, down: Collection[str], jobs: Sequence[RunningJob], spares: Sequence[str]
) -> ReplanProblem:
    after = tuple(
        replace(node, state=NodeState.FAILED) if node.name in down else node for node in whole.cluster.nodes
    )
    now = replace(whole, id=f"{whole.id}-after", cluster=replace(whole.cluster, nodes=after))
    return ReplanProblem(now, tuple(jobs), tuple(spares), spare_worth_share=0.0)


def _job(number: int, kind: Kind, whole: ClusterSnapshot, hosts: Sequence[str]) -> RunningJob:
    kept = tuple(node for node in whole.cluster.nodes if node.name in set(hosts))
    part = replace(whole, cluster=replace(whole.cluster, nodes=kept))
    asked = PlanningProblem(part, read_architecture(kind.model), _workload(kind.nodes))
    found = predict(asked, _configuration(kind.model, kind.nodes), hosts=hosts)
    return RunningJob(f"job-{number:03d}", f"{kind.model}-{number:03d}", found, kind.weight, kind.policy)


@cache
def _configuration(model: str, nodes: int) -> Configuration:
    """The planner's choice for the model on so many nodes of one leaf."""
    asked = PlanningProblem(cluster_of(nodes), read_architecture(model), _workload(nodes))
    found = plan(asked, SearchOptions(time_limit_s=60.0))
    assert isinstance(found, Plan)
    return found.configuration


def _workload(nodes: int) -> TrainingWorkload:
    return TrainingWorkload(sequence_length=SEQUENCE, global_batch=SEQUENCES_A_NODE * nodes)
