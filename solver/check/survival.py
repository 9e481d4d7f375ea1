"""Whether a plan survives the losses that its workload asks it to, and says so.

Counted from the ranks alone: who holds a copy of what another rank holds, and where.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

from cluster_models.cluster.topology import Node
from cluster_models.model.architecture import Architecture
from cluster_models.training.plan import Plan
from cluster_models.training.workload import Sharding
from solver.problem import PlanningProblem


def survival_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Losses that ``problem`` asks to survive and ``plan`` does not, or that ``plan`` states wrongly."""
    nodes = {node.name: node for node in problem.snapshot.cluster.nodes}
    if not {place.node for place in plan.placement.ranks} <= set(nodes):
        return  # reported by the placement rules
    stated = {each.label: each.count for each in plan.survives}
    in_memory = problem.workload.memory_checkpoint
    for label in dict.fromkeys((*problem.workload.survive, *stated)):
        count = _survivable(plan, problem.architecture, nodes, label, in_memory=in_memory)
        asked = problem.workload.survive.get(label, 0)
        if count < asked:
            yield f"The plan must survive the loss of {asked} of {label} and survives {count}."
        if label in stated and stated[label] != count:
            yield f"The plan states that it survives {stated[label]} of {label}, and it survives {count}."


def _survivable(plan: Plan, model: Architecture, nodes: dict[str, Node], label: str, *, in_memory: bool) -> int:
    """Places that may be lost: one less than those that hold the part of the state in fewest places."""
    hosts = list(dict.fromkeys(plan.placement.hosts))
    position = {host: index for index, host in enumerate(hosts)}
    degrees, sharding = plan.configuration.degrees, plan.configuration.sharding
    block, sparse = degrees.expert * degrees.expert_tensor, _sparse_stages(plan, model)
    ranks = degrees.context * degrees.data
    group = plan.configuration.sharding_ranks or ranks
    expert_group = max(degrees.tensor * group // block, 1)
    copies: dict[Hashable, set[str | None]] = defaultdict(set)
    for place in plan.placement.ranks:
        at = {nodes[place.node].place(label)}
        if in_memory:
            at.add(nodes[hosts[(position[place.node] + 1) % len(hosts)]].place(label))
        copy = place.context + degrees.context * place.data
        member = place.tensor + degrees.tensor * copy
        shards = {"weights": sharding is Sharding.PARAMETERS, "optimizer": sharding is not Sharding.NONE}
        for kind, is_shared in shards.items():
            copies[kind, place.pipeline, place.tensor, copy % group if is_shared else -1] |= at
            if place.pipeline in sparse:
                shard = member // block % expert_group if is_shared else -1
                copies[kind, place.pipeline, "expert", member % block, shard] |= at
    return min(len(places) for places in copies.values()) - 1


def _sparse_stages(plan: Plan, model: Architecture) -> set[int]:
    """Pipeline ranks with a layer that has experts; prediction layers lie behind the last layer and are like it."""
    found, layer = set(), 0
    for stage, count in plan.configuration.chunks:
        if any(model.sparse_pattern[layer : layer + count]):
            found.add(stage)
        layer += count
    if model.prediction_layers and model.sparse_pattern[-1]:
        found.add(plan.configuration.chunks[-1][0])
    return found
