"""Fabrics and candidates that keep the placement rules of a workload, and contradictions by field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.cluster.topology import Node
from cluster_models.errors import InvalidWorkload
from cluster_models.training.placement_rules import Spread
from cluster_models.training.plan import Degrees
from solver.candidates import ORDER_CODES, BoolArray
from solver.degrees.priced import PricedCandidates
from solver.placement.fabric import Fabric
from solver.placement.rule_counting import Unkept, ground_of, unkept
from solver.placement.rules import terrain_of
from solver.problem import PlanningProblem

_NAMED: Final = 5
_BUILT_IN: Final = ("node", "nvlink_domain")


def ruled_fabrics(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> tuple[Fabric, ...]:
    """The fabrics; under rules each takes every candidate, for the wider units may be unable to keep them."""
    if not problem.workload.placement:
        return tuple(fabrics)
    return tuple(replace(fabric, wider=()) for fabric in fabrics)


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Candidates (n,) that may keep all rules, and how many each rule rules out."""

    mask: BoolArray
    ruled_out: dict[Unkept, int]


def kept_candidates(problem: PlanningProblem, fabrics: Sequence[Fabric], candidates: PricedCandidates) -> Kept:
    """The candidates that counting leaves a chance to keep all rules."""
    if not problem.workload.placement:
        return Kept(np.ones(len(candidates), dtype=np.bool_), {})
    cluster, batch = problem.snapshot.cluster, candidates.batch
    grounds = [ground_of(terrain_of(cluster, problem.workload, fabric)) for fabric in fabrics]
    degrees = (batch.tensor, batch.pipeline, batch.data, batch.context, batch.expert, batch.expert_tensor)
    shapes, member = np.unique(
        np.stack([candidates.fabric, batch.rank_order, *degrees]), axis=1, return_inverse=True
    )
    reasons = [
        unkept(
            grounds[fabric],
            Degrees(tensor, pipeline, data, context, expert, expert_tensor=expert_tensor),
            ORDER_CODES[order],
        )
        for fabric, order, tensor, pipeline, data, context, expert, expert_tensor in shapes.T.tolist()
    ]
    member = member.reshape(len(candidates))
    ruled_out: dict[Unkept, int] = {}
    for index, count in enumerate(np.bincount(member, minlength=len(reasons))):
        reason = reasons[index]
        if reason is not None:
            ruled_out[reason] = ruled_out.get(reason, 0) + int(count)
    return Kept(np.array([reason is None for reason in reasons], dtype=np.bool_)[member], ruled_out)


def taken(candidates: PricedCandidates, mask: BoolArray) -> PricedCandidates:
    """The candidates of ``mask`` (n,)."""
    return replace(
        candidates,
        batch=candidates.batch.take(mask),
        fabric=candidates.fabric[mask],
        staging=candidates.staging[mask],
        bound_s=candidates.bound_s[mask],
        excess_bytes=candidates.excess_bytes[mask],
        weight=candidates.weight[mask],
    )


def check_placement(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> None:
    """Raise ``InvalidWorkload`` naming the first rule that contradicts the cluster or the workload."""
    nodes = problem.snapshot.cluster.nodes
    positions = sorted({int(position) for fabric in fabrics for position in fabric.members.ravel()})
    usable = [nodes[position] for position in positions]
    _check_required(problem, {node.name for node in usable})
    _check_labels(problem, usable)
    _check_contradictions(problem)
    check_units(problem, fabrics)
    _check_places(problem, usable)
    _check_spares(problem, fabrics)


def _check_required(problem: PlanningProblem, usable: set[str]) -> None:
    nodes = {node.name: node for node in problem.snapshot.cluster.nodes}
    for index, name in enumerate(problem.workload.placement.require_nodes):
        field = f"workload.placement.require_nodes[{index}]"
        if name not in nodes:
            raise InvalidWorkload(field, name, "is not a node of the cluster")
        if name not in usable:
            node = nodes[name]
            why = f"its state is {node.state}" if node.free_gpus else "other jobs hold all its GPUs (gpus_in_use)"
            raise InvalidWorkload(field, name, f"cannot be a host: {why}")


def _check_labels(problem: PlanningProblem, usable: Sequence[Node]) -> None:
    for field, label in _labels(problem):
        without = [node.name for node in usable if node.place(label) is None]
        if without:
            known = sorted({name for node in usable for name in node.labels} | set(_BUILT_IN))
            names = ", ".join(without[:_NAMED]) + ", ..." * (len(without) > _NAMED)
            raise InvalidWorkload(
                f"workload.placement.{field}",
                label,
                f"{len(without)} of {len(usable)} usable nodes have no such label: {names}",
                f"label them, avoid them, or use one of {', '.join(known)}",
            )


def _check_contradictions(problem: PlanningProblem) -> None:
    """No group sits in at least so many places and in fewer at once."""
    asked = problem.workload.placement
    for i, rule in enumerate(asked.spread):
        for j, other in enumerate(asked.keep_together):
            alike = (rule.group, rule.over) == (other.group, other.within)
            if alike and rule.at_least is not None and rule.at_least > other.at_most:
                raise InvalidWorkload(
                    f"workload.placement.spread[{i}].at_least",
                    rule.at_least,
                    f"contradicts keep_together[{j}]: {other.group} within {other.at_most} of {other.within}",
                    f"drop one of the two, or allow at_most: {rule.at_least}",
                )


def _labels(problem: PlanningProblem) -> list[tuple[str, str]]:
    """The labels that rules speak of, each with its field."""
    asked = problem.workload.placement
    found = [(f"spread[{i}].over", rule.over) for i, rule in enumerate(asked.spread)]
    found += [(f"keep_together[{i}].within", rule.within) for i, rule in enumerate(asked.keep_together)]
    return found + [(f"spares[{i}].per", spares.per) for i, spares in enumerate(asked.spares) if spares.per]


def check_units(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> None:
    """Nodes that are placed together must stand in one place of every label that counts.

    Raises ``InvalidWorkload`` where they do not.
    """
    nodes = problem.snapshot.cluster.nodes
    labels = {label: f"workload.placement.{field}" for field, label in _labels(problem) if label != "node"}
    labels |= {switch.label: "cluster.switches" for switch in problem.snapshot.cluster.switches}
    for fabric in fabrics:
        for unit in fabric.members if fabric.nodes_per_unit > 1 else ():
            for label, field in labels.items():
                places = sorted({str(nodes[position].place(label)) for position in unit})
                if len(places) > 1:
                    raise InvalidWorkload(
                        field,
                        label,
                        f"the nodes of NVLink domain {nodes[unit[0]].nvlink_domain}, which are placed together, "
                        f"have several: {', '.join(places[:_NAMED])}",
                        "give the nodes of an NVLink domain one value, or use another label",
                    )


def _check_places(problem: PlanningProblem, usable: Sequence[Node]) -> None:
    workload = problem.workload
    for index, rule in enumerate(workload.placement.spread):
        places = len({node.place(rule.over) for node in usable})
        field = f"workload.placement.spread[{index}]"
        if rule.at_least is not None and rule.at_least > places:
            raise InvalidWorkload(
                f"{field}.at_least",
                rule.at_least,
                f"the usable nodes have only {places} different values of {rule.over}",
                f"ask for at most {places}",
            )
        _check_pinned(rule, field, workload.pinned.get(rule.group, 1), places)


def _check_pinned(rule: Spread, field: str, ranks: int, places: int) -> None:
    """A pinned degree may be more ranks than there are places."""
    if rule.at_least is None and ranks > places:
        raise InvalidWorkload(
            f"{field}.over",
            rule.over,
            f"the workload pins {rule.group} to {ranks}, and {ranks} ranks do not fit into {places} different "
            f"values of {rule.over} with no two in one",
            f"pin at most {places}, or ask for at_least: {min(places, ranks)}",
        )


def _check_spares(problem: PlanningProblem, fabrics: Sequence[Fabric]) -> None:
    asked = problem.workload.placement.spares
    cluster = problem.snapshot.cluster
    if asked and all(ground_of(terrain_of(cluster, problem.workload, f)).most_units < 1 for f in fabrics):
        raise InvalidWorkload(
            "workload.placement.spares",
            [str(spares) for spares in asked],
            "leaves no node to plan with: spares are ready nodes that the plan could have used",
            "ask for fewer spares",
        )
