"""Whether every rank sits where its launcher will put it, on a GPU that may be used."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from cluster_models.cluster.topology import Node
from cluster_models.training.plan import Configuration, Plan, RankPlace
from solver.problem import PlanningProblem


def placement_violations(plan: Plan, problem: PlanningProblem) -> Iterator[str]:
    """Rules on hosts, ranks, GPUs and tensor groups that the placement breaks."""
    nodes = {node.name: node for node in problem.snapshot.cluster.nodes}
    yield from _host_rules(plan, nodes, problem.workload.avoid_nodes)
    yield from _unused_rules(plan, nodes, problem.workload.avoid_nodes)
    yield from _rank_rules(plan)
    yield from _gpu_rules(plan, nodes)
    yield from _tensor_group_rules(plan, nodes)
    yield from _expert_tensor_rules(plan, nodes)


def coordinates(rank: int, configuration: Configuration) -> tuple[int, int, int, int]:
    """(tensor, context, data, pipeline) of a rank: the digits of ``rank``, read along the order string."""
    degrees = configuration.degrees
    sizes = {"tp": degrees.tensor, "cp": degrees.context, "dp": degrees.data, "pp": degrees.pipeline}
    digit = {}
    for axis in configuration.rank_order.split("-"):
        if axis == "ep":  # folded over the other axes of a stage, no digit of its own
            continue
        rank, digit[axis] = divmod(rank, sizes[axis])
    return digit["tp"], digit["cp"], digit["dp"], digit["pp"]


def _host_rules(plan: Plan, nodes: dict[str, Node], avoided: tuple[str, ...]) -> Iterator[str]:
    placement, gpus = plan.placement, plan.configuration.degrees.gpus
    if len(placement.hosts) * placement.gpus_per_node != gpus:
        yield (
            f"{len(placement.hosts)} hosts with {placement.gpus_per_node} GPUs each do not make the {gpus} "
            "GPUs of the degrees."
        )
    for host, count in Counter(placement.hosts).items():
        if count > 1:
            yield f"Host {host} is listed {count} times."
        if host not in nodes:
            yield f"Host {host} is not a node of the cluster."
        elif not nodes[host].usable:
            yield f"Host {host} is in state {nodes[host].state} and must not carry ranks."
        if host in avoided:
            yield f"Host {host} is used although the workload avoids it."


def _unused_rules(plan: Plan, nodes: dict[str, Node], avoided: tuple[str, ...]) -> Iterator[str]:
    hosts, spares = set(plan.placement.hosts), set(plan.spare_nodes)
    unused = set(plan.unused_nodes)
    for name in sorted(unused & hosts):
        yield f"Node {name} is called unused although it is a host."
    for name in sorted(unused - set(nodes)):
        yield f"Node {name} is called unused but is not in the cluster."
    for name, node in nodes.items():
        if node.usable and name not in avoided and name not in hosts | unused | spares:
            yield f"Node {name} is usable but is neither a host nor called unused or spare."


def _rank_rules(plan: Plan) -> Iterator[str]:
    placement, gpus = plan.placement, plan.configuration.degrees.gpus
    seen = Counter(place.rank for place in placement.ranks)
    for rank in sorted(set(seen) | set(range(gpus))):
        if seen[rank] != 1 or not 0 <= rank < gpus:
            yield f"Rank {rank} appears {seen[rank]} times; ranks 0 to {gpus - 1} must appear once each."
    for place in placement.ranks:
        if not 0 <= place.rank < gpus:
            continue
        expected = coordinates(place.rank, plan.configuration)
        stated = (place.tensor, place.context, place.data, place.pipeline)
        if stated != expected:
            yield (
                f"Rank {place.rank} is said to be (tensor, context, data, pipeline) {stated} but order "
                f"{plan.configuration.rank_order} makes it {expected}."
            )
        index = place.rank // max(placement.gpus_per_node, 1)
        host = placement.hosts[index] if index < len(placement.hosts) else None
        if place.node != host:
            yield f"Rank {place.rank} is said to be on {place.node} but the host list puts it on {host}."


def _gpu_rules(plan: Plan, nodes: dict[str, Node]) -> Iterator[str]:
    ranks_of: dict[tuple[str, int], list[int]] = defaultdict(list)
    for place in plan.placement.ranks:
        ranks_of[place.node, place.gpu].append(place.rank)
        if place.node not in nodes:
            yield f"Rank {place.rank} sits on {place.node}, which is not a node of the cluster."
        elif not 0 <= place.gpu < nodes[place.node].gpu_count:
            yield (
                f"Rank {place.rank} sits on GPU {place.gpu} of {place.node}, which has "
                f"{nodes[place.node].gpu_count}."
            )
        elif place.gpu in nodes[place.node].gpus_in_use:
            yield f"Rank {place.rank} sits on GPU {place.gpu} of {place.node}, which another job holds."
    for (node, gpu), ranks in ranks_of.items():
        if len(ranks) > 1:
            yield f"GPU {gpu} of {node} carries {len(ranks)} ranks: {ranks}."


def _expert_tensor_rules(plan: Plan, nodes: dict[str, Node]) -> Iterator[str]:
    """Ranks that cut experts between them are consecutive in their stage and share an NVLink domain."""
    degrees = plan.configuration.degrees
    groups: dict[tuple[int, int], set[str]] = defaultdict(set)
    for place in plan.placement.ranks:
        inside = place.tensor + degrees.tensor * (place.context + degrees.context * place.data)
        if place.node in nodes:
            groups[place.pipeline, inside // degrees.expert_tensor].add(nodes[place.node].nvlink_domain)
    for (stage, number), domains in groups.items():
        if len(domains) > 1:
            yield (
                f"Expert tensor group {number} of stage {stage} spans NVLink domains {', '.join(sorted(domains))}."
            )


def _tensor_group_rules(plan: Plan, nodes: dict[str, Node]) -> Iterator[str]:
    groups: dict[tuple[int, int, int], list[RankPlace]] = defaultdict(list)
    for place in plan.placement.ranks:
        groups[place.context, place.data, place.pipeline].append(place)
    for key, members in groups.items():
        domains = {nodes[member.node].nvlink_domain for member in members if member.node in nodes}
        if len(domains) > 1:
            yield (
                f"The tensor group of (context, data, pipeline) {key} spans NVLink domains "
                f"{', '.join(sorted(domains))}."
            )
