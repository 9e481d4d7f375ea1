"""A job on the cluster as failures left it, prepared once: afterwards an assignment is priced in a millisecond.

Letters: K slots of the job's placement, N units of nodes of its site, the first K of them its own in rank order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster_models.cluster.power import capped
from cluster_models.jobs.running import RunningJob
from cluster_models.links.model import LinkModel
from cluster_models.training.placement_rules import PlacementRules
from cluster_models.training.plan import Configuration
from cluster_models.training.workload import TrainingWorkload
from solver.candidates import BoolArray, IntArray, batch_of
from solver.compiled import step_seconds, violations
from solver.costs.calibration import calibration_of
from solver.degrees.stage_costs import StageKinds
from solver.placement.fabric import Fabric
from solver.placement.geometry import geometry
from solver.placement.link_times import flow_levels, times_over
from solver.problem import PlanningProblem
from solver.refine import Candidate, prepare
from solver.replanning.problem import ReplanProblem
from solver.replanning.resources import JobResources, resources_of, unreadable
from solver.replanning.units import Units, site_units


@dataclass(frozen=True, slots=True, eq=False)
class JobSite:
    """A job, what it may use, and its own configuration ready to be placed there.

    The units of ``candidate.fabric`` are those of ``units``: first the K of the plan, whether they serve or not.
    ``serves`` (N,): those that can carry ranks now.
    """

    resources: JobResources
    units: Units
    asked: PlanningProblem
    candidate: Candidate
    serves: BoolArray

    @property
    def problem(self) -> ReplanProblem:
        """The cluster and all its jobs."""
        return self.resources.problem

    @property
    def job(self) -> RunningJob:
        """The job."""
        return self.resources.job

    @property
    def lost(self) -> frozenset[tuple[str, int]]:
        """GPUs that it cannot use any more."""
        return self.resources.lost

    @property
    def state_lost(self) -> frozenset[tuple[str, int]]:
        """GPUs of the job whose state cannot be read any more: those of nodes that drain still can."""
        return unreadable(self.problem, self.lost)

    @property
    def gpus(self) -> int:
        """GPUs that the job uses of a node."""
        return self.job.plan.placement.gpus_per_node

    @property
    def links(self) -> LinkModel:
        """The links that its times are made of."""
        return self.candidate.fabric.links

    @property
    def slots(self) -> int:
        """K."""
        return self.units.slots

    @property
    def home(self) -> IntArray:
        """(K,) the units as the job runs, lost ones too; one that was made whole from spares in its place."""
        return np.array(self.units.repairs, dtype=np.int64)

    @property
    def broken(self) -> IntArray:
        """The slots whose unit does not serve."""
        return np.flatnonzero(~self.serves[: self.slots])

    @property
    def hit(self) -> IntArray:
        """The slots that lost a GPU, also those whose nodes have others in its place; see ``broken``."""
        ranks = {(place.node, place.gpu) for place in self.job.plan.placement.ranks}
        lost = {node for node, _ in ranks & self.lost}
        hit = [not lost.isdisjoint(unit) for unit in self.units.members[: self.slots]]
        return np.union1d(np.flatnonzero(hit), self.broken)

    @property
    def is_rerouted(self) -> bool:
        """Whether the job runs without some of its ranks, lost before."""
        plan = self.job.plan
        return len(plan.placement.ranks) < plan.configuration.degrees.gpus

    @property
    def is_touched(self) -> bool:
        """Whether any of the job's GPUs is lost, or on a node that must be left."""
        return bool(len(self.broken)) or any(
            (place.node, place.gpu) in self.lost for place in self.job.plan.placement.ranks
        )

    @property
    def others(self) -> tuple[str, ...]:
        """The nodes of its units that are not its own."""
        return tuple(sorted({host for unit in self.units.members for host in unit} - set(self.job.nodes)))

    def takes(self, nodes: Collection[str]) -> BoolArray:
        """(N,) units that serve and have no nodes but the job's own and ``nodes``."""
        known = {*self.job.nodes, *nodes}
        known_units = np.array([known.issuperset(unit) for unit in self.units.members])
        return np.asarray(self.serves & known_units)

    def step_s(self, hosts: Sequence[str]) -> float:
        """Seconds of a step with the job's own configuration on ``hosts`` in rank order.

        Raises ``KeyError`` where they are not units of the site.
        """
        number = {unit: index for index, unit in enumerate(self.units.members)}
        width = self.units.width
        chunks = [tuple(hosts[first : first + width]) for first in range(0, len(hosts), width)]
        return self.step_of(np.array([number[chunk] for chunk in chunks], dtype=np.int64))

    def step_of(self, assignment: IntArray) -> float:
        """Seconds of a step with slot ``k`` on unit ``assignment[k]``."""
        return float(step_seconds(assignment, self.candidate.placement.arrays)[0])

    def rules_broken(self, assignment: IntArray) -> int:
        """How often ``assignment`` breaks the placement rules of the workload."""
        return int(violations(assignment, self.candidate.placement.arrays.rules))


def site_of(
    problem: ReplanProblem,
    job: RunningJob,
    pool: Sequence[str],
    lost: frozenset[tuple[str, int]],
    *,
    given_up: frozenset[tuple[str, int]] = frozenset(),
) -> JobSite:
    """The site of ``job`` with the nodes of ``pool`` beside its own.

    ``lost`` are GPUs (node, number) that cannot be used; ``given_up`` GPUs of other jobs that this one may have.
    """
    resources = resources_of(problem, job, lost, given_up)
    units = site_units(resources, pool)
    configuration = job.plan.configuration
    asked = planning_problem(resources, configuration)
    candidate = prepared(resources, units.members, asked, configuration, job.plan.placement.gpus_per_node)
    return JobSite(resources, units, asked, candidate, np.array(units.serves, dtype=np.bool_))


def planning_problem(
    resources: JobResources, configuration: Configuration, *, global_batch: int = 0
) -> PlanningProblem:
    """The planner's problem for ``configuration`` on the cluster as the job sees it.

    ``global_batch`` where it changes.
    """
    plan, problem = resources.job.plan, resources.problem
    assert plan.architecture is not None
    assert plan.workload is not None
    workload = workload_for(plan.workload, configuration, problem.position)
    workload = replace(workload, global_batch=global_batch or workload.global_batch)
    return PlanningProblem(resources.snapshot(), plan.architecture, workload, problem.fitted.get(resources.job.id))


def workload_for(
    workload: TrainingWorkload, configuration: Configuration, known: Collection[str]
) -> TrainingWorkload:
    """``workload`` without what a failure overrules.

    Spares are there to be used, required nodes may be lost, and a pinned degree may have to give way.  Nodes to
    avoid that the cluster no longer has say nothing.
    """
    rules = PlacementRules(workload.placement.spread, workload.placement.keep_together)
    degrees, micro_batch = configuration.degrees, configuration.micro_batch
    pinned = {
        name: size
        for name, size in workload.pinned.items()
        if size == (micro_batch if name == "micro_batch" else getattr(degrees, name))
    }
    avoided = tuple(name for name in workload.avoid_nodes if name in known)
    return replace(workload, placement=rules, pinned=pinned, avoid_nodes=avoided)


def without_replicas(workload: TrainingWorkload) -> TrainingWorkload:
    """``workload`` without a pinned number of replicas, which gives way to a failure; other pins hold."""
    return replace(workload, pinned={name: size for name, size in workload.pinned.items() if name != "data"})


def prepared(
    resources: JobResources,
    members: Sequence[Sequence[str]],
    asked: PlanningProblem,
    configuration: Configuration,
    gpus_per_node: int,
) -> Candidate:
    """``configuration`` ready to be placed on units of ``members``, of the GPU kinds that the job runs on."""
    fabric = _fabric(resources, members, asked, gpus_per_node)
    kinds = _stage_kinds(resources, fabric)
    return prepare(asked, fabric, batch_of(configuration), configuration.stage_layers, kinds)


def _fabric(
    resources: JobResources, members: Sequence[Sequence[str]], asked: PlanningProblem, gpus_per_node: int
) -> Fabric:
    problem = resources.problem
    nodes, cluster = problem.nodes, problem.snapshot.cluster
    names = sorted({nodes[host].gpu_kind for host in resources.job.nodes})
    kinds = tuple(capped(cluster.gpu_kinds[name], asked.workload.gpu_power_cap_watts) for name in names)
    in_use = np.array([[resources.senders(host) for host in unit] for unit in members], dtype=np.int64)
    workload = asked.workload
    return Fabric(
        names=tuple(unit[0] for unit in members),
        members=np.array([[problem.position[host] for host in unit] for unit in members], dtype=np.int64),
        slowdown=np.array([max(nodes[host].compute_slowdown for host in unit) for unit in members]),
        kinds=kinds,
        kind=np.array([names.index(nodes[unit[0]].gpu_kind) for unit in members], dtype=np.int64),
        gpus_per_node=gpus_per_node,
        in_use=in_use,
        times=times_over(problem.links(workload.link_bandwidth), flow_levels(gpus_per_node, in_use)),
        domain_shares=tuple(calibration_of(kind, workload.framework, asked.fitted).domain_share for kind in kinds),
    )


def _stage_kinds(resources: JobResources, fabric: Fabric) -> StageKinds:
    """The GPU kind of each pipeline rank, as the job runs; empty where there is one."""
    if not fabric.is_mixed:
        return ()
    plan, nodes = resources.job.plan, resources.problem.nodes
    gpus, configuration = plan.placement.gpus_per_node, plan.configuration
    slots = geometry(configuration.degrees, configuration.rank_order, gpus).cell_slots[0, :, 0]
    names = [kind.name for kind in fabric.kinds]
    return tuple(names.index(nodes[plan.placement.hosts[slot]].gpu_kind) for slot in slots)
