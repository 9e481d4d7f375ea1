"""Spares of a plan among the nodes that it leaves free."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_models.cluster.topology import Node, NodeState
from cluster_models.training.placement_rules import Spares
from solver.placement.rules import terrain_of
from solver.problem import PlanningProblem
from solver.refine import Candidate


def spare_nodes(problem: PlanningProblem, candidate: Candidate, hosts: Sequence[str]) -> tuple[str, ...]:
    """Nodes named for every rule on spares, the healthiest first of those free; in the cluster's order.

    One node may serve several rules.
    """
    asked = problem.workload.placement
    if not asked.spares:
        return ()
    cluster = problem.snapshot.cluster
    pool = terrain_of(cluster, problem.workload, candidate.fabric).pool
    free = [node for node in pool if node.state is NodeState.READY and node.name not in hosts]
    free.sort(key=lambda node: node.compute_slowdown)
    chosen: list[Node] = []
    # rules by place first: what they name counts for rules on all
    for spares in sorted(asked.spares, key=lambda rule: rule.per is None):
        for place in _places_in_use(spares, [cluster.node(host) for host in hosts]):
            here = [node for node in free if place is None or node.place(str(spares.per)) == place]
            lacking = spares.count - sum(node in chosen for node in here)
            chosen += [node for node in here if node not in chosen][: max(0, lacking)]
    names = {node.name for node in chosen}
    return tuple(node.name for node in cluster.nodes if node.name in names)


def _places_in_use(spares: Spares, hosts: Sequence[Node]) -> list[str | None]:
    """The places that each need the spares; ``None`` stands for the whole cluster."""
    if spares.per is None:
        return [None]
    return list(dict.fromkeys(host.place(spares.per) for host in hosts))
