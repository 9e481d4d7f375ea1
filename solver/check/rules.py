"""Whether a plan keeps the rules asked of its nodes, names its spares, and sends no faster than switches pass.

Derived from the ranks, their labels and the timeline alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping

from cluster_models.cluster.topology import Node, NodeState
from cluster_models.training.placement_rules import RankGroup, Spread
from cluster_models.training.plan import Plan, RankPlace
from solver.check.certificate import plan_watts
from solver.problem import PlanningProblem

ACTIVATION_BYTES = 2.0
"""Bytes of each number that stages send: 16 bits at least."""
TOLERANCE = 1e-6


def rule_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules on neighbours, spares, required nodes and shared switches that ``plan`` breaks."""
    nodes = {node.name: node for node in problem.snapshot.cluster.nodes}
    asked = problem.workload.placement
    if not {place.node for place in plan.placement.ranks} | set(plan.placement.hosts) <= set(nodes):
        return  # reported by the placement rules
    for rule in asked.neighbours:
        several = isinstance(rule, Spread) and rule.at_least is not None
        for key, members in _groups(plan, rule.group, several=several).items():
            places = [nodes[place.node].place(rule.label) for place in members]
            if broken := _broken(rule, places):
                yield f"The {rule.group} group {key} breaks the rule to {rule}: {broken}."
    yield from _spare_rules(plan, problem, nodes)
    for name in asked.require_nodes:
        if name not in plan.placement.hosts:
            yield f"Node {name} must be a host and is not."
    yield from _switch_rules(plan, problem, nodes)
    most, watts = problem.workload.max_power_watts, plan_watts(plan, problem)
    if most is not None and watts > most * (1 + TOLERANCE):
        yield f"The plan's GPUs take {watts:g} W but the workload allows {most:g} W."


def _groups(plan: Plan, group: RankGroup, *, several: bool) -> Mapping[Hashable, list[RankPlace]]:
    """The ranks of each group of a kind, by the coordinates they share.

    Copies in ``several`` places: of experts over more than a cell, only ranks with the same experts hold copies.
    """
    degrees = plan.configuration.degrees
    cell, block = degrees.tensor * degrees.context, degrees.expert * degrees.expert_tensor
    found: dict[Hashable, list[RankPlace]] = defaultdict(list)
    for place in plan.placement.ranks:
        expert = place.tensor + degrees.tensor * (place.context + degrees.context * place.data)
        keys: dict[RankGroup, Hashable] = {
            RankGroup.DATA: (place.tensor, place.context, place.pipeline),
            RankGroup.PIPELINE: place.data,
            RankGroup.STAGE: place.pipeline,
            RankGroup.TENSOR: (place.context, place.data, place.pipeline),
            RankGroup.CONTEXT: (place.data, place.pipeline),
            RankGroup.EXPERT: (expert // block, expert % degrees.expert_tensor, place.pipeline),
            RankGroup.JOB: "",
        }
        if several and block > cell:
            keys[RankGroup.DATA] = (expert % block, place.pipeline)
        found[keys[group]].append(place)
    return found


def _broken(rule: object, places: list[str | None]) -> str:
    """Fault in the places of one group; empty where there is none."""
    if None in places:
        return "a node has no such label"
    different = len(set(places))
    if isinstance(rule, Spread):
        wanted = len(places) if rule.at_least is None else rule.at_least
        return f"{different} places instead of {wanted}" if different < wanted else ""
    most = getattr(rule, "at_most", 1)
    return f"{different} places instead of at most {most}" if different > most else ""


def _spare_rules(plan: Plan, problem: PlanningProblem, nodes: Mapping[str, Node]) -> Iterator[str]:
    hosts, spares = plan.placement.hosts, plan.spare_nodes
    kinds = {nodes[host].gpu_kind for host in hosts}
    for name in spares:
        node = nodes.get(name)
        if node is None or name in hosts or name in problem.workload.avoid_nodes:
            yield f"Spare {name} is not a free node of the cluster."
        elif node.state is not NodeState.READY:
            yield f"Spare {name} is in state {node.state}."
        elif node.gpu_kind not in kinds or len(node.free_gpus) < plan.placement.gpus_per_node:
            yield f"Spare {name} cannot take a host's part: it has {len(node.free_gpus)} x {node.gpu_kind} free."
    if spares and not problem.workload.placement.spares:
        yield f"The plan names spares that nobody asked for: {', '.join(spares)}."
    yield from _spare_counts(plan, problem, nodes)


def _spare_counts(plan: Plan, problem: PlanningProblem, nodes: Mapping[str, Node]) -> Iterator[str]:
    named = [nodes[name] for name in plan.spare_nodes if name in nodes]
    for rule in problem.workload.placement.spares:
        if rule.per is None:
            if len(named) < rule.count:
                yield f"The plan names {len(named)} spares of the {rule.count} asked for."
            continue
        for place in {nodes[host].place(rule.per) for host in plan.placement.hosts}:
            here = sum(node.place(rule.per) == place for node in named)
            if here < rule.count:
                yield f"The plan names {here} spares in {rule.per} {place} of the {rule.count} asked for."


def _switch_rules(plan: Plan, problem: PlanningProblem, nodes: Mapping[str, Node]) -> Iterator[str]:
    """Activations that leave a switch take no less time than its uplink needs for them alone."""
    degrees = plan.configuration.degrees
    if degrees.virtual_pipeline > 1 or not plan.timeline:
        return
    sequences = plan.configuration.micro_batch
    sent = ACTIVATION_BYTES * problem.architecture.hidden * sequences * problem.workload.tokens_per_sequence
    replica = plan.timeline[0].replica
    for label, uplinks in problem.snapshot.cluster.uplinks().items():
        for stage in range(degrees.pipeline - 1):
            above = [
                {
                    nodes[place.node].place(label)
                    for place in plan.placement.ranks
                    if place.pipeline == at and place.data == replica
                }
                for at in (stage, stage + 1)
            ]
            if any(len(places) != 1 for places in above) or above[0] == above[1]:
                continue
            rates = [uplinks[place].bytes_per_s for places in above for place in places if place in uplinks]
            if rates and _fastest_send(plan, stage) < sent / min(rates) * (1 - TOLERANCE):
                yield (
                    f"Replica {replica} sends {sent:.4g} bytes from stage {stage} to {stage + 1} in "
                    f"{_fastest_send(plan, stage):.4g} s, faster than the uplink of their {label} passes them."
                )


def _fastest_send(plan: Plan, stage: int) -> float:
    """The least time between a forward's end on a stage and its start on the next."""
    starts, ends = (
        sorted(
            event.start_s + event.duration_s * (at == stage)
            for event in plan.timeline
            if event.category == "forward" and event.track == at
        )
        for at in (stage + 1, stage)
    )
    return min((start - end for start, end in zip(starts, ends, strict=False)), default=0.0)
