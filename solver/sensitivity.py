"""Plans on fewer GPUs, and after changes of the hardware or the framework's settings, each searched anew."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.switches import Switch
from cluster_models.cluster.topology import MOST_NODES, NodeState
from cluster_models.errors import InvalidWorkload, SolverFailed
from cluster_models.training.framework_choices import Overlap
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.training.sensitivity import Effect, Lever, Obstacle, Sensitivity
from cluster_models.training.workload import Choice, Objective
from cluster_models.units import GIB
from solver import search
from solver.check import check_plan
from solver.predict import predict
from solver.problem import IsCancelled, OnProgress, PlanningProblem, Progress, SearchOptions

FASTER: Final = 2.0
"""Factor of ``Lever.LINKS``."""
MORE_BYTES: Final = 10 * GIB
"""Change of ``Lever.MEMORY``, in bytes."""
MOST_SIZES: Final = 5
"""Numbers of GPUs below that of the fastest plan that are planned for: a node less, then halves."""
LEAST_PLAN_S: Final = 0.5
FIRST_SHARE: Final = 2.0
"""Time of the first plan over that of another: everything is measured on it."""


@dataclass(slots=True)
class _Work:
    """State of the searches."""

    options: SearchOptions
    on_progress: OnProgress | None
    is_cancelled: IsCancelled | None
    searches: int
    started: float = field(default_factory=time.monotonic)
    made: int = 0

    def plan(self, problem: PlanningProblem, share: float = 1.0) -> Plan | NoPlan | None:
        """The fastest plan in a fair part of the time left; ``None`` once cancelled, but for the first."""
        if self.made and self.is_cancelled is not None and self.is_cancelled():
            return None
        elapsed_s, left = time.monotonic() - self.started, self.searches - self.made
        if self.on_progress is not None:
            self.on_progress(Progress(elapsed_s, "planning", self.searches, left, None, None, None, None))
        self.made += 1
        limit_s = share * (self.options.time_limit_s - elapsed_s) / (max(left, 1) + share - 1.0)
        options = replace(self.options, time_limit_s=max(limit_s, LEAST_PLAN_S), alternatives=0)
        found = search.plan(problem, options, is_cancelled=self.is_cancelled)
        if isinstance(found, Plan) and (broken := check_plan(found, problem)):
            raise SolverFailed(f"a plan breaks its own rules: {' '.join(broken[:3])}")
        return found


def sensitivity(
    problem: PlanningProblem,
    options: SearchOptions,
    *,
    on_progress: OnProgress | None = None,
    is_cancelled: IsCancelled | None = None,
) -> Sensitivity | NoPlan:
    """Plans on fewer GPUs and after changes, or why nothing fits as it is.

    All are the fastest found by step time, whatever the workload's objective and choice.  A cancelled search has
    those made until then.  Raises ``InvalidInput`` where the workload contradicts the model or the cluster, and
    ``SolverFailed`` where a plan does not pass its check.
    """
    workload = replace(problem.workload, objective=Objective.STEP_TIME, choice=Choice.FASTEST)
    asked = replace(problem, workload=workload)
    changes = list(_offered(asked))
    work = _Work(options, on_progress, is_cancelled, 1 + MOST_SIZES + len(changes))
    first = work.plan(asked, FIRST_SHARE)
    if isinstance(first, NoPlan):
        return first
    assert first is not None, "the first search is not left out"
    smaller, too_few = _smaller(work, asked, first)
    front: list[Plan] = []
    for plan in (*smaller, first):
        if not front or plan.time.step_s < front[-1].time.step_s:
            front.append(plan)
    work.made = work.searches - len(changes)
    effects = tuple(_effect(work, asked, front[-1], change) for change in changes)
    return Sensitivity(tuple(front), effects, too_few)


def _smaller(work: _Work, problem: PlanningProblem, fewest: Plan) -> tuple[list[Plan], int | None]:
    """Fastest plans on fewer GPUs, fewest first, and a number of GPUs on which nothing fits, if one was met."""
    found: list[Plan] = []
    for limit in _sizes(fewest):
        if fewest.configuration.degrees.gpus <= limit:
            continue
        try:
            plan = work.plan(replace(problem, workload=replace(problem.workload, max_gpus=limit)))
        except InvalidWorkload:  # what it pins or requires takes more
            return found, limit
        if plan is None:
            break
        if isinstance(plan, NoPlan):
            return found, limit
        found.insert(0, plan)
        fewest = plan
    return found, None


def _sizes(plan: Plan) -> list[int]:
    """Numbers of GPUs below that of ``plan``: a node less, then halves of whole nodes, most first."""
    gpus, node = plan.configuration.degrees.gpus, plan.placement.gpus_per_node
    halves = [max(gpus // 2**times // node * node, 1) for times in range(1, MOST_SIZES)]
    return sorted({size for size in (gpus - node, *halves) if size > 0}, reverse=True)


def _offered(problem: PlanningProblem) -> Iterator[Lever | Overlap]:
    """Changes that could matter: overlaps that the framework has not by itself, of traffic that there can be."""
    yield from Lever
    for overlap in Overlap:
        free = map(str, problem.workload.free_settings)
        is_on = getattr(problem.workload.framework, overlap) or str(overlap) in free
        if not is_on and (overlap is not Overlap.EXPERTS or problem.architecture.experts is not None):
            yield overlap


def _effect(work: _Work, problem: PlanningProblem, plan: Plan, change: Lever | Overlap) -> Effect:
    if obstacle := _obstacle(problem, change):
        return Effect(change, obstacle=obstacle)
    changed = changed_problem(problem, plan, change)
    kept_s = plan.time.step_s
    if change is Lever.LINKS or isinstance(change, Overlap):
        hosts, size = plan.placement.hosts, plan.placement.gpus_per_node
        kept_s = predict(changed, plan.configuration, hosts=hosts, gpus_per_node=size).time.step_s
    found = work.plan(changed)
    if not isinstance(found, Plan):
        return Effect(change, kept_step_s=kept_s)
    return Effect(change, kept_s, found, min(found.certificate.bound, kept_s))


def _obstacle(problem: PlanningProblem, change: Lever | Overlap) -> Obstacle | None:
    """Why a change is not possible; ``None`` where it is."""
    workload, framework = problem.workload, problem.workload.framework
    if change is Lever.NODE and len(problem.snapshot.cluster.nodes) >= MOST_NODES:
        return Obstacle.NODES
    if not isinstance(change, Overlap):
        return None
    if change not in framework.overlaps:
        return Obstacle.NO_SWITCH
    if workload.precision is {Overlap.TENSOR: Precision.NVFP4, Overlap.EXPERTS: Precision.FP32}.get(change):
        return Obstacle.PRECISION
    if change is Overlap.TENSOR and not framework.sequence_parallel:
        return Obstacle.SEQUENCE_PARALLEL
    return None


def changed_problem(problem: PlanningProblem, plan: Plan, change: Lever | Overlap) -> PlanningProblem:
    """``problem``, whose plan is ``plan``, after a change."""
    workload, snapshot = problem.workload, problem.snapshot
    match change:
        case Lever.NODE:
            limit = workload.max_gpus
            workload = replace(workload, max_gpus=None if limit is None else limit + plan.placement.gpus_per_node)
            snapshot = _with_node(snapshot, plan.placement.hosts[-1])
        case Lever.LINKS:
            switches = tuple(map(_faster, snapshot.cluster.switches))
            snapshot = replace(
                snapshot,
                cluster=replace(snapshot.cluster, switches=switches),
                links_faster=FASTER * snapshot.links_faster,
            )
        case Lever.MEMORY:
            kinds = {
                name: replace(kind, memory_bytes=kind.memory_bytes + MORE_BYTES)
                for name, kind in snapshot.cluster.gpu_kinds.items()
            }
            snapshot = replace(snapshot, cluster=replace(snapshot.cluster, gpu_kinds=kinds))
        case _:
            on: dict[str, Any] = {change.value: True}
            workload = replace(workload, framework=replace(workload.framework, **on))
    return replace(problem, snapshot=snapshot, workload=workload)


def _with_node(snapshot: ClusterSnapshot, like: str) -> ClusterSnapshot:
    """``snapshot`` with a healthy, free node like another, whose links nobody measured."""
    cluster = snapshot.cluster
    names = {node.name for node in cluster.nodes}
    name = next(
        name for name in (f"{like}-more{'+' * extra}" for extra in range(len(names) + 1)) if name not in names
    )
    node = replace(
        cluster.node(like),
        name=name,
        nvlink_domain=name,
        state=NodeState.READY,
        compute_slowdown=1.0,
        gpus_in_use=(),
    )
    return replace(snapshot, cluster=replace(cluster, nodes=(*cluster.nodes, node)))


def _faster(switch: Switch) -> Switch:
    uplink, ratio = switch.uplink_bytes_per_s, switch.oversubscription
    return replace(
        switch,
        uplink_bytes_per_s=None if uplink is None else uplink * FASTER,
        oversubscription=None if ratio is None else ratio / FASTER,
    )
