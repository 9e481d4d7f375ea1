"""The question after failures, and the options that a job has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Node, NodeState
from cluster_models.health.events import EntityKind, HealthEvent, HealthState
from cluster_models.jobs.recovery import ConsideredAction, Migration, RecoveryAction
from cluster_models.jobs.running import InvalidRunningJob, RunningJob
from cluster_models.links.model import LinkModel, effective_links
from cluster_models.links.suspicions import suspicions
from cluster_models.remarks import Remark
from cluster_models.training.plan import Plan
from cluster_models.training.workload import LinkBandwidth
from solver.problem import Backend

LEAVING: Final = frozenset({NodeState.FAILED, NodeState.DRAINING})
"""States of nodes that no job stays on."""
HORIZON_S: Final = 6 * 3600.0
"""Time over which decisions are weighed where nothing is said: about what a node takes to come back."""

SPARE_WORTH_SHARE: Final = 0.01
"""Worth of a spare that is kept, in work of a GPU, where nothing is said: little, but more than a trifle."""


@dataclass(frozen=True)
class ReplanProblem:
    """A cluster as it is now, with what ran on it before it was.

    ``snapshot``: states, links and GPUs after the failures (``cluster_models.health.conditions.degraded``); GPUs of
    the jobs here are not counted as in use.  ``jobs`` are all that run on the cluster, no two on one GPU.
    ``spares`` are the free nodes that jobs may take.  ``gpu_budget`` limits the GPUs of all jobs together.
    A spare GPU that a job takes must be worth ``spare_worth_share`` of what one of its GPUs does over the horizon,
    as planned: spares kept are a reserve for what fails next.
    ``back_after_s``: when lost nodes are expected to serve again, for what waiting is worth; ``jobs_back_after_s``
    by id of the jobs that lost something for which another time is expected.
    Raises ``InvalidRunningJob`` where two jobs hold one GPU or name a node that the cluster does not have.
    """

    snapshot: ClusterSnapshot
    jobs: tuple[RunningJob, ...]
    spares: tuple[str, ...]
    horizon_s: float = HORIZON_S
    back_after_s: float = HORIZON_S
    jobs_back_after_s: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    gpu_budget: int | None = None
    spare_worth_share: float = SPARE_WORTH_SHARE
    events: tuple[HealthEvent, ...] = ()
    fitted: Mapping[str, FittedParameters] = field(default_factory=lambda: MappingProxyType({}))
    """The user's own parameters by job id."""

    def __post_init__(self) -> None:
        held: dict[tuple[str, int], str] = {}
        for job in self.jobs:
            for place in () if job.is_paused else job.plan.placement.ranks:
                if place.node not in self.nodes:
                    raise InvalidRunningJob(
                        f"jobs.{job.name}.plan",
                        place.node,
                        "is not a node of the cluster",
                        "name the cluster it runs on",
                    )
                other = held.setdefault((place.node, place.gpu), job.name)
                if other != job.name:
                    raise InvalidRunningJob(
                        f"jobs.{job.name}.plan",
                        f"{place.node}:{place.gpu}",
                        f"is held by {other} as well",
                        "a GPU serves one job",
                    )

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name, as they are now."""
        return {node.name: node for node in self.snapshot.cluster.nodes}

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Where each node stands in the cluster, and in the rows of its links."""
        return {node.name: index for index, node in enumerate(self.snapshot.cluster.nodes)}

    @cached_property
    def holders(self) -> Mapping[str, Mapping[int, str]]:
        """The id of the job on each GPU, by node and number."""
        held: dict[str, dict[int, str]] = {}
        for job in self.jobs:
            for place in () if job.is_paused else job.plan.placement.ranks:
                held.setdefault(place.node, {})[place.gpu] = job.id
        return held

    @cached_property
    def free_spares(self) -> frozenset[tuple[str, int]]:
        """Usable GPUs of the spare nodes that no job holds."""
        nodes = (self.nodes[name] for name in self.spares if name in self.nodes)
        return frozenset(
            (node.name, gpu)
            for node in nodes
            if node.usable
            for gpu in node.free_gpus
            if gpu not in self.holders.get(node.name, {})
        )

    @cached_property
    def cut_off(self) -> Mapping[str, frozenset[str]]:
        """Nodes where a network card failed, by id of the jobs whose processes ended with it.

        Those that one node holds use none, and some frameworks go on over the cards that are left.
        """
        failed = {
            event.entity.node
            for event in self.events
            if event.entity.kind is EntityKind.NIC and event.state is HealthState.FAILED
        }
        jobs = (job for job in self.jobs if len(set(job.nodes)) > 1 and not job.recovery.survives_lost_card)
        return {job.id: nodes for job in jobs if (nodes := frozenset(failed.intersection(job.nodes)))}

    @cached_property
    def whole(self) -> frozenset[str]:
        """The ids of the jobs that run on and may keep every GPU that they hold."""
        running = (job for job in self.jobs if not job.is_paused and job.id not in self.cut_off)
        return frozenset(
            job.id
            for job in running
            if all(self.stays((place.node, place.gpu)) for place in job.plan.placement.ranks)
        )

    def job_back_after_s(self, job: RunningJob) -> float:
        """Time until all that a job lost is expected to serve again."""
        return self.jobs_back_after_s.get(job.id, self.back_after_s)

    def stays(self, gpu: tuple[str, int]) -> bool:
        """Whether whoever holds that GPU may keep it: it works, and its node is not to be left."""
        node = self.nodes[gpu[0]]
        return node.state not in LEAVING and gpu[1] not in node.gpus_in_use

    def links(self, bandwidth: LinkBandwidth = LinkBandwidth.MEDIAN) -> LinkModel:
        """The links of the cluster as it is now, worked out once for all jobs."""
        if bandwidth not in self._links:
            self._links[bandwidth] = effective_links(self.snapshot, bandwidth=bandwidth)
        return self._links[bandwidth]

    def doubts(self, bandwidth: LinkBandwidth) -> tuple[Remark, ...]:
        """Warnings for a reader of any plan on this cluster about its measurements."""
        if bandwidth not in self._doubts:
            tables = self.links(bandwidth).tables if bandwidth is LinkBandwidth.MEDIAN else None
            self._doubts[bandwidth] = suspicions(self.snapshot, tables)
        return self._doubts[bandwidth]

    @cached_property
    def _doubts(self) -> dict[LinkBandwidth, tuple[Remark, ...]]:
        return {}

    @cached_property
    def _links(self) -> dict[LinkBandwidth, LinkModel]:
        return {}


@dataclass(frozen=True, slots=True)
class ReplanOptions:
    """Budget of one decision.  ``effort`` scales what is tried, ``time_limit_s`` only cuts it short."""

    time_limit_s: float = 15.0
    gap: float = 0.01
    effort: int = 1
    seed: int = 0
    backend: Backend = Backend.CBC


@dataclass(frozen=True, slots=True)
class RecoveryOption:
    """One thing that can be done with one job: placed, priced, and the GPUs it holds afterwards.

    ``holds`` are (node, GPU number), those it waits on included; ``value_flop`` as in ``JobDecision``; ``plan`` is
    ``None`` where the job stands still.  ``least_gain_flop``: what the value was lowered by because the job still
    runs, and stopping it must gain that much, or because another shape must; ``spares_flop``: because spares that
    it takes are worth that kept.
    """

    job_id: str
    action: RecoveryAction
    holds: frozenset[tuple[str, int]]
    value_flop: float
    tokens_per_s: float
    limited_by: Remark
    migration: Migration
    plan: Plan | None
    reason: Remark
    refused: tuple[ConsideredAction, ...] = ()
    least_gain_flop: float = 0.0
    spares_flop: float = 0.0
