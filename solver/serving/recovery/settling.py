"""Groups that are to serve side by side, under the load that is asked for, as a plan."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Node, NodeState
from cluster_models.serving.goal import ServingGoal, ServingObjective
from cluster_models.serving.plan import IdleGpus, IdleReason, ServingCertificate, ServingPlan
from cluster_models.serving.replicas import ReplicaGroup
from solver.problem import SearchOptions
from solver.serving.plan import provenance_of
from solver.serving.planning.assembling import assembled, grouped
from solver.serving.planning.found import gap_of
from solver.serving.planning.islands import Site, site_of
from solver.serving.planning.settle import Settled, settle
from solver.serving.problem import ServingProblem
from solver.serving.recovery.problem import Gpu, RecoveryProblem
from solver.serving.recovery.standing import placed_of

LEAST_LOAD: Final = 1e-9
"""Below which a model counts as not served."""


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Groups under the load that they share, by model; ``carried``: all that is asked for.

    ``room`` by model is the most load (requests/s, or in flight) within the limits; ``rates`` what is answered.
    """

    problem: ServingProblem
    site: Site
    settled: tuple[Settled, ...]
    room: tuple[float, ...]
    rates: tuple[float, ...]
    carried: bool


def with_free(snapshot: ClusterSnapshot, gpus: Collection[Gpu]) -> ClusterSnapshot:
    """The snapshot with all GPUs in use but ``gpus``, as far as these are free.

    Nodes of theirs that are only suspected count as ready: a suspicion moves nothing.
    """
    wanted = set(gpus)
    nodes = tuple(_with_free(node, wanted) for node in snapshot.cluster.nodes)
    return replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes))


def _with_free(node: Node, wanted: Collection[Gpu]) -> Node:
    free = [gpu for gpu in node.free_gpus if (node.name, gpu) in wanted]
    is_suspected = bool(free) and node.state is NodeState.UNKNOWN
    return replace(
        node,
        gpus_in_use=tuple(gpu for gpu in range(node.gpu_count) if gpu not in free),
        state=NodeState.READY if is_suspected else node.state,
    )


def together(problem: RecoveryProblem, groups: Sequence[ReplicaGroup], free: Collection[Gpu]) -> Together:
    """``groups`` on the GPUs ``free``, which hold all theirs, under the load of the deployment."""
    plan, goal = problem.job.asked, problem.job.asked.goal
    own = ServingProblem(with_free(problem.snapshot, free), plan.models, goal)
    site = site_of(own.snapshot, replace(goal, avoid_nodes=()))
    placed = tuple(placed_of(group, site) for group in groups)
    at_most = replace(goal, objective=ServingObjective.GOODPUT)
    settled, rooms, rates = [], [], []
    carried = True
    for model, served in enumerate(plan.models):
        if not any(each.group.model == model for each in placed):
            rooms.append(0.0)
            rates.append(0.0)
            carried = False
            continue
        full = settle(model, served, placed, site, at_most)
        closed = served.workload.concurrency is not None
        within = np.where(full.most.meets, full.most.concurrency if closed else full.most.requests_per_s, 0.0)
        room = float(within.sum())
        shares = within / room if room > LEAST_LOAD else within
        load = served.workload.concurrency if closed else served.workload.requests_per_s
        assert load is not None  # a workload has one of them
        mine = iter(shares * min(load, room))
        shared = tuple(
            replace(each, load=float(next(mine))) if each.group.model == model else each for each in placed
        )
        found = settle(model, served, shared, site, goal)
        carried &= found.is_sound and room * (1 + 1e-9) >= (0.0 if _is_goodput(goal) else load)
        settled.append(found if found.is_sound else full)
        rooms.append(room)
        rates.append(float(np.where(within > 0, (found if found.is_sound else full).at.requests_per_s, 0.0).sum()))
    return Together(own, site, tuple(settled), tuple(rooms), tuple(rates), carried)


def as_plan(
    found: Together, bound: ServingCertificate, bound_goal: ServingGoal, options: SearchOptions
) -> ServingPlan | None:
    """The plan of ``found``, or ``None`` where some model has no group.

    ``bound`` is the certificate of a plan with ``bound_goal`` that may use all GPUs: nothing beats its bound.
    """
    problem = replace(found.problem, goal=bound_goal)
    if len(found.settled) < len(problem.models):
        return None
    settled = found.settled
    if not found.carried:
        flat = [each for own in settled for each in own.groups]
        settled = tuple(
            settle(model, served, flat, found.site, bound_goal) for model, served in enumerate(problem.models)
        )
    groups, figures = grouped(problem.models, settled, found.site)
    objective = sum(each.objective for each in settled)
    is_maximum = bound_goal.objective.is_maximum
    most = max(bound.bound, objective) if is_maximum else min(bound.bound, objective)
    certificate = replace(bound, objective=objective, bound=most, gap=gap_of(objective, most))
    plan = assembled(problem, found.site, groups, figures, certificate, provenance_of(problem, options))
    return replace(plan, idle=tuple(_idle(found.site.snapshot, plan)))


def _idle(snapshot: ClusterSnapshot, plan: ServingPlan) -> list[IdleGpus]:
    used = {(place.node, gpu) for replica in plan.replicas for place in replica.places for gpu in place.gpus}
    found = []
    for node in snapshot.cluster.nodes:
        if idle := tuple(gpu for gpu in node.free_gpus if (node.name, gpu) not in used):
            reason = IdleReason.NOT_NEEDED if node.usable else IdleReason.NOT_READY
            found.append(IdleGpus(node.name, idle, reason))
    return found


def _is_goodput(goal: ServingGoal) -> bool:
    return goal.objective is ServingObjective.GOODPUT
