"""Losses that a plan survives: live copies of every part of its state, and the failure domains that hold them.

``docs/resilience.md`` says why the counts are exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.remarks import remark
from cluster_models.training.failure_domains import FailureDomainLosses
from cluster_models.training.plan import NoPlan, Plan
from solver.answer.remedies import SHARD_OPTIMIZER, SHARD_PARAMETERS
from solver.costs.training_state import PlanState, states_of
from solver.degrees.survival_rules import losses_of

if TYPE_CHECKING:
    from cluster_models.cluster.topology import Cluster, Node
    from solver.candidates import IntArray
    from solver.problem import PlanningProblem

PHYSICAL_LABELS: Final = ("node", "nvlink_domain", "leaf", "rack", "zone")
"""Labels that are failure domains whatever a workload or the switches speak of."""
_SHARDING_REMEDIES: Final = {SHARD_OPTIMIZER, SHARD_PARAMETERS}


def with_losses(answer: Plan | NoPlan, problem: PlanningProblem) -> Plan | NoPlan:
    """The answer to ``problem``, found for what ``survival_rules`` makes of it, with what it survives.

    Remedies that ``workload.survive`` rules out are told as what they are: surviving less.
    """
    workload = problem.workload
    if isinstance(answer, Plan):
        return plan_with_losses(answer, problem)
    if not workload.survive:
        return answer
    by_replicas = bool(losses_of(workload).by_replicas)
    remedies = [remedy for remedy in answer.remedies if remedy.code not in _SHARDING_REMEDIES]
    if by_replicas and len(remedies) < len(answer.remedies):
        remedies.append(remark("survive_less"))
    needs = remark(
        "survival_needs",
        labels=tuple(workload.survive),
        losses=tuple(workload.survive.values()),
        by_replicas=by_replicas,
    )
    return replace(answer, reasons=(*answer.reasons, needs), remedies=tuple(remedies))


def plan_with_losses(plan: Plan, problem: PlanningProblem) -> Plan:
    """The same of a plan."""
    policy = RecoveryPolicy(memory_checkpoint=problem.workload.memory_checkpoint)
    return replace(plan, workload=problem.workload, survives=survives(plan, policy, problem.snapshot.cluster))


def survives(plan: Plan, recovery: RecoveryPolicy, cluster: Cluster) -> tuple[FailureDomainLosses, ...]:
    """How many failure domains of each kind may be lost together, whichever, with all state alive.

    By label: ``PHYSICAL_LABELS`` and those of the switches, of the workload's rules and of what it asks to survive,
    as far as all hosts carry them.  One that parts the hosts as another does is told only if it was asked for.  A
    checkpoint in another node's memory counts as a copy where ``recovery`` keeps one.  Empty for plans made by hand
    without a model.  Raises ``InvalidCluster`` where a host is not a node of the cluster.
    """
    if plan.architecture is None or plan.workload is None:
        return ()
    asked = (*plan.workload.survive, *plan.workload.placement.labels)
    labels = dict.fromkeys((*PHYSICAL_LABELS, *asked, *(switch.label for switch in cluster.switches)))
    (state,) = states_of((plan,), recovery)
    nodes = _hosts(state, cluster)
    found, seen = [], set()
    for label in labels:
        names = _places(nodes, label)
        parted = tuple(names.index(name) for name in names)
        if names and (label in asked or parted not in seen):
            seen.add(parted)
            found.append(_losses(state, label, names, in_memory=recovery.memory_checkpoint))
    return tuple(found)


def losses_by(plan: Plan, recovery: RecoveryPolicy, cluster: Cluster, label: str) -> FailureDomainLosses | None:
    """The same for one label; ``None`` where some host does not carry it."""
    (state,) = states_of((plan,), recovery)
    names = _places(_hosts(state, cluster), label)
    return _losses(state, label, names, in_memory=recovery.memory_checkpoint) if names else None


def _hosts(state: PlanState, cluster: Cluster) -> list[Node]:
    known = {node.name: node for node in cluster.nodes}
    return [known.get(host) or cluster.node(host) for host in state.hosts]


def _places(nodes: list[Node], label: str) -> list[str]:
    """The place of every host; none at all where some host has none."""
    found = [node.place(label) for node in nodes]
    names = [place for place in found if place is not None]
    return names if len(names) == len(found) else []


def _losses(state: PlanState, label: str, names: list[str], *, in_memory: bool) -> FailureDomainLosses:
    numbers: dict[str, int] = {}
    place = np.array([numbers.setdefault(name, len(numbers)) for name in names], dtype=np.int64)
    places = tuple(numbers)
    weakest = tuple(places[number] for number in _fewest_places(state, place, in_memory=in_memory).tolist())
    return FailureDomainLosses(label, len(weakest) - 1, len(places), weakest)


def _fewest_places(state: PlanState, place: IntArray, *, in_memory: bool) -> IntArray:
    """The places that hold the part of the state that lies in fewest of them; ``place`` is that of each host."""
    hosts = len(state.hosts)
    sites = [state.host, (state.host + 1) % hosts] if in_memory else [state.host]
    fewest = np.arange(int(place.max()) + 1)
    for stages in np.unique(state.homes, axis=0):
        units = (state.homes == stages).all(axis=1)
        ranks = state.rank_of[stages].ravel()
        for part in state.parts:
            if not part.unit_bytes[units].any():
                continue
            rank = ranks.reshape(-1, state.members)[:, part.shares.member]
            piece = np.broadcast_to(part.shares.low, rank.shape)
            pairs = np.unique(np.concatenate([(piece * len(place) + place[site[rank]]).ravel() for site in sites]))
            pieces, counts = np.unique(pairs // len(place), return_counts=True)
            weakest = int(counts.argmin())
            if counts[weakest] < len(fewest):
                fewest = pairs[pairs // len(place) == pieces[weakest]] % len(place)
    return fewest
