"""Resources of a job after a failure: of each node the GPUs that are left to it.

A job keeps what it holds and still works.  GPUs of other jobs are out of reach unless those give them up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import USABLE_STATES, Node, NodeState
from cluster_models.jobs.running import InvalidRunningJob, RunningJob
from solver.replanning.problem import ReplanProblem

_STAYS = USABLE_STATES | {NodeState.UNKNOWN}
"""States in which a node keeps the ranks it has: a suspicion moves nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class JobResources:
    """The cluster as one job sees it.

    ``lost`` are GPUs that cannot be used, ``given_up`` those of other jobs that it may have.  ``held``: by node,
    the GPU of each of its ranks there by their order on that node (of a plan made before other losses some may
    be missing).  ``turn`` tells jobs apart that share nodes: each would start on other GPUs of a free one.
    """

    problem: ReplanProblem
    job: RunningJob
    lost: frozenset[tuple[str, int]]
    given_up: frozenset[tuple[str, int]]
    held: Mapping[str, Mapping[int, int]]
    turn: int = 0
    _free: dict[str, tuple[int, ...]] = field(default_factory=dict, init=False)
    _snapshots: list[ClusterSnapshot] = field(default_factory=list, init=False)

    def gpus(self, name: str) -> tuple[int, ...]:
        """Numbers of the GPUs of a node that the job may use; of one that is suspected only those it holds."""
        if name not in self._free:
            node, busy, lost = self.problem.nodes[name], self._busy(name), self.lost
            free: Collection[int] = node.free_gpus
            if node.state is NodeState.UNKNOWN:
                held = self.held.get(name, {}).values()
                free = [gpu for gpu in free if gpu in held]
            self._free[name] = tuple(gpu for gpu in free if gpu not in busy and (name, gpu) not in lost)
        return self._free[name]

    def senders(self, name: str) -> int:
        """GPUs of a node that others hold: they are taken to send whenever the job does.  Lost ones do not."""
        node, held = self.problem.nodes[name], self.held.get(name, {}).values()
        busy = self._busy(name) | set(node.gpus_in_use)
        return len([gpu for gpu in busy if (name, gpu) not in self.lost and gpu not in held])

    def offers(self, name: str, gpus: int) -> bool:
        """Whether a node can carry ``gpus`` ranks; one that does already may be suspected, others must be well."""
        states = _STAYS if name in self.held else USABLE_STATES
        return self.problem.nodes[name].state in states and len(self.gpus(name)) >= gpus

    def carries(self, name: str) -> bool:
        """Whether a node of the plan can go on with all its ranks; it had them until now."""
        place, gpus = self.job.nodes.index(name), self.job.plan.placement.gpus_per_node
        ranks = min(gpus, self.job.plan.configuration.degrees.gpus - place * gpus)
        return len(self.held.get(name, {})) == ranks and self.offers(name, ranks)

    def gpus_for(self, name: str, ranks: int) -> tuple[int, ...]:
        """The GPU of each of ``ranks`` ranks on a node: those that live stay on theirs, others take free ones."""
        free, held = self.gpus(name), self.held.get(name, {})
        kept = {local: gpu for local, gpu in held.items() if local < ranks and gpu in free}
        # GPUs that the job holds come first: they need not be claimed
        own = [gpu for gpu in free if gpu in held.values() and gpu not in kept.values()]
        further = [gpu for gpu in free if gpu not in held.values()]
        start = self.turn * ranks % max(len(further), 1)
        others = iter(own + further[start:] + further[:start])
        return tuple(kept[local] if local in kept else next(others) for local in range(ranks))

    def snapshot(self) -> ClusterSnapshot:
        """The cluster with all GPUs in use that the job cannot have."""
        if not self._snapshots:
            whole = self.problem.snapshot
            nodes = tuple(self._seen(node) for node in whole.cluster.nodes)
            self._snapshots.append(replace(whole, cluster=replace(whole.cluster, nodes=nodes)))
        return self._snapshots[0]

    def _seen(self, node: Node) -> Node:
        free = self.gpus(node.name)
        if free == node.free_gpus:
            return node
        return replace(node, gpus_in_use=tuple(gpu for gpu in range(node.gpu_count) if gpu not in free))

    def _busy(self, name: str) -> set[int]:
        """GPUs of a node that other jobs keep."""
        holders = self.problem.holders.get(name, {})
        return {gpu for gpu, job in holders.items() if job != self.job.id and (name, gpu) not in self.given_up}


def resources_of(
    problem: ReplanProblem,
    job: RunningJob,
    lost: frozenset[tuple[str, int]],
    given_up: frozenset[tuple[str, int]] = frozenset(),
) -> JobResources:
    """Resources of ``job``."""
    held: dict[str, dict[int, int]] = {}
    for place in job.plan.placement.ranks:
        held.setdefault(place.node, {})[place.rank % job.plan.placement.gpus_per_node] = place.gpu
    partly = [other.id for other in problem.jobs if _shares_nodes(problem, other)]
    turn = partly.index(job.id) if job.id in partly else 0
    return JobResources(problem, job, lost, given_up, held, turn)


def _shares_nodes(problem: ReplanProblem, job: RunningJob) -> bool:
    """Whether a job leaves GPUs of its nodes to others."""
    return any(
        job.plan.placement.gpus_per_node < problem.nodes[name].gpu_count for name in job.plan.placement.hosts
    )


def unreadable(problem: ReplanProblem, lost: frozenset[tuple[str, int]]) -> frozenset[tuple[str, int]]:
    """GPUs of ``lost`` whose state is gone: what lies on nodes that drain can still be read."""
    nodes = problem.nodes
    return frozenset(
        (name, gpu)
        for name, gpu in lost
        if nodes[name].state is not NodeState.DRAINING or gpu in nodes[name].gpus_in_use
    )


def check_plan(problem: ReplanProblem, job: RunningJob) -> None:
    """Raise ``InvalidRunningJob`` where the cluster does not have the nodes and GPUs of the plan (any more)."""
    placement, nodes = job.plan.placement, problem.nodes
    for name in (*placement.hosts, *(place.node for place in placement.ranks)):
        if name not in nodes:
            raise InvalidRunningJob(
                f"jobs.{job.name}.plan.placement.hosts",
                name,
                "is not a node of the cluster (any more)",
                "add the node to the cluster, or give the job a plan on nodes that it has",
            )
    for place in placement.ranks:
        if place.gpu >= nodes[place.node].gpu_count:
            raise InvalidRunningJob(
                f"jobs.{job.name}.plan.placement.ranks",
                f"{place.node}:{place.gpu}",
                f"is not a GPU of a node that has {nodes[place.node].gpu_count}",
                "correct the cluster's gpu_count, or give the job the plan that it runs by",
            )
