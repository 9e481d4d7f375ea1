"""Jobs that a batch of failures touches, what they still hold, and the GPUs that may be given out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields

from cluster_models.cluster.topology import NodeState
from cluster_models.health.events import EntityKind
from cluster_models.jobs.running import RunningJob
from solver.replanning.problem import ReplanProblem
from solver.replanning.program import Gpu


@dataclass(frozen=True, slots=True)
class Touched:
    """The jobs by what the failures did to them, each part in the order of their ids.

    ``hit`` lost GPUs, must leave some, or ended with a network card; ``slowed`` sit on nodes or links that do less
    than they did, which may cost them nothing; ``short`` are paused or run on fewer GPUs than they want;
    ``movable`` are whole and may be moved at a price; ``frozen`` stay as they are.
    """

    hit: tuple[RunningJob, ...] = ()
    slowed: tuple[RunningJob, ...] = ()
    short: tuple[RunningJob, ...] = ()
    movable: tuple[RunningJob, ...] = ()
    frozen: tuple[RunningJob, ...] = ()

    @property
    def in_question(self) -> tuple[RunningJob, ...]:
        """Jobs that the decision may change."""
        return tuple(sorted((*self.hit, *self.slowed, *self.short, *self.movable), key=lambda job: job.id))

    def without(self, ids: Collection[str]) -> Touched:
        """The same without the jobs of ``ids``."""
        parts = {part.name: getattr(self, part.name) for part in fields(self)}
        return Touched(**{name: tuple(job for job in jobs if job.id not in ids) for name, jobs in parts.items()})


def touched(problem: ReplanProblem) -> Touched:
    """The jobs of ``problem`` sorted by what became of what they hold."""
    poor = poor_nodes(problem)
    parts: dict[str, list[RunningJob]] = {}
    for job in sorted(problem.jobs, key=lambda job: job.id):
        parts.setdefault(_part(problem, job, poor), []).append(job)
    return Touched(**{name: tuple(jobs) for name, jobs in parts.items()})


def _part(problem: ReplanProblem, job: RunningJob, poor: frozenset[str]) -> str:
    if job.id in problem.cut_off or lost_gpus(problem, job):
        return "hit"
    if _slowed(problem, job, poor):
        return "slowed"
    if job.is_paused or len(held_gpus(job)) < (job.wanted_gpus or 0):
        return "short"
    return "movable" if job.recovery.may_move else "frozen"


def worth_first(job: RunningJob) -> tuple[float, str]:
    """Sorts jobs by what a second of them is worth, the most first."""
    return -job.weight * job.flops_per_s, job.id


def held_gpus(job: RunningJob) -> frozenset[Gpu]:
    """The GPUs of the plan that the job runs by; none of a paused one."""
    ranks = () if job.is_paused else job.plan.placement.ranks
    return frozenset((place.node, place.gpu) for place in ranks)


def lost_gpus(problem: ReplanProblem, job: RunningJob) -> frozenset[Gpu]:
    """GPUs of the job that failed, sit on a failed node, or on one that is to be left."""
    return frozenset(gpu for gpu in held_gpus(job) if not problem.stays(gpu))


def live_gpus(problem: ReplanProblem, job: RunningJob) -> frozenset[Gpu]:
    """GPUs of the job that it may keep."""
    return held_gpus(job) - lost_gpus(problem, job)


def spare_gpus(problem: ReplanProblem) -> frozenset[Gpu]:
    """Usable GPUs of the spare nodes that no job holds."""
    return problem.free_spares


def beside_gpus(problem: ReplanProblem, job: RunningJob) -> frozenset[Gpu]:
    """GPUs that nobody holds on the usable nodes that the job runs on: its own ranks may take them."""
    nodes = (problem.nodes[name] for name in set(job.nodes))
    free = {(node.name, gpu) for node in nodes if node.usable for gpu in node.free_gpus}
    return frozenset(gpu for gpu in free if gpu[1] not in problem.holders.get(gpu[0], {}))


def free_gpus(problem: ReplanProblem, jobs: Iterable[RunningJob]) -> frozenset[Gpu]:
    """GPUs that a decision about ``jobs`` may give out: the spares, and usable ones that the jobs hold.

    GPUs that are free on the nodes of the jobs count as well.
    """
    jobs = tuple(jobs)
    own = {gpu for job in jobs for gpu in live_gpus(problem, job) if problem.nodes[gpu[0]].usable}
    return spare_gpus(problem) | own | {gpu for job in jobs for gpu in beside_gpus(problem, job)}


def poor_nodes(problem: ReplanProblem) -> frozenset[str]:
    """Degraded nodes: those that the events speak of, all where there are none."""
    degraded = {name: node for name, node in problem.nodes.items() if node.state is NodeState.DEGRADED}
    if not problem.events:
        return frozenset(degraded)
    entities = {event.entity for event in problem.events}
    named = {entity.node for entity in entities} | {entity.part for entity in entities}
    switches = {tuple(entity.part.partition(":")[::2]) for entity in entities if entity.kind is EntityKind.SWITCH}
    return frozenset(
        name
        for name, node in degraded.items()
        if name in named or any(node.place(label) == place for label, place in switches)
    )


def _slowed(problem: ReplanProblem, job: RunningJob, poor: frozenset[str]) -> bool:
    nodes = set(job.nodes)
    shares = problem.snapshot.link_shares
    return bool(nodes & poor) or any(
        share.node in nodes and (not share.other or share.other in nodes) and len(nodes) > 1 for share in shares
    )
