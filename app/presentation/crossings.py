"""Parallel groups of a plan that lie on one place, and those that cross NVLink domains, leaves or nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.presentation.figures import plural, seconds, spans
from cluster_models.cluster.topology import Cluster, Node
from cluster_models.training.plan import Alternative, Degrees, Plan, RankPlace
from cluster_models.wording import joined, named


@dataclass(frozen=True, slots=True)
class Places:
    """Where the hosts of a plan are: ``kind`` of place ("leaf", ...) and the place of each node."""

    kind: str
    of_node: Mapping[str, str]


def places(cluster: Cluster, hosts: Sequence[str]) -> Places:
    """NVLink domains where hosts share one, else leaves, racks or zones where all have one, else the nodes."""
    wanted = set(hosts)
    nodes = {node.name: node for node in cluster.nodes if node.name in wanted}
    domains = {node.name: node.nvlink_domain for node in nodes.values()}
    if len(set(domains.values())) < len(domains):
        return Places("NVLink domain", domains)
    for label in ("leaf", "rack", "zone"):
        if nodes and all(node.place(label) is not None for node in nodes.values()):
            return Places(label, {name: _place(node, label) for name, node in nodes.items()})
    return Places("node", {host: host for host in hosts})


def _place(node: Node, label: str) -> str:
    return node.place(label) or ""


def busiest_sentence(other: Alternative, where: Places) -> str:
    """Where the busiest stage of an alternative lies, and its time of a micro-batch; empty where not placed."""
    if (busiest := other.busiest) is None:
        return ""
    names = sorted({where.of_node.get(node, node) for node in busiest.nodes})
    lies = f"on {named(busiest.nodes)}"
    if where.kind != "node":
        lies += f" ({where.kind} {named(names)})"
    of = other.configuration.degrees.pipeline
    there = f"a micro-batch takes {seconds(busiest.micro_batch_s)} there"
    if of == 1:
        return f"Its slowest replica lies {lies}: {there}. "
    usual = seconds(busiest.median_s)
    return f"Its busiest stage, {busiest.stage} of {of}, lies {lies}: {there}, {usual} on the median one. "


def crossing_stages(plan: Plan, where: Places) -> dict[str, tuple[int, ...]]:
    """For each kind of group in use, the pipeline stages in which one of its groups lies on several places."""
    kinds: dict[str, set[int]] = {}
    for kind, members in _groups(plan.placement.ranks, plan.configuration.degrees):
        crosses = len({where.of_node.get(rank.node, rank.node) for rank in members}) > 1
        kinds.setdefault(kind, set()).update({members[0].pipeline} if crosses else ())
    return {kind: tuple(sorted(stages)) for kind, stages in kinds.items()}


def crossing_sentence(crossing: Mapping[str, Sequence[int]], where: Places, stages: int) -> str:
    """Groups that stay on one place, then those that cross."""
    if where.kind == "node":
        within, between = "inside a node", "nodes"
    else:
        within, between = f"on one {where.kind}", "leaves" if where.kind == "leaf" else f"{where.kind}s"
    inside = [kind.removesuffix(" parallel") for kind, found in crossing.items() if not found]
    lead = [f"All {joined(inside)} parallel groups stay {within}."] if inside else []
    for kind, found in crossing.items():
        if found:
            which = "all stages" if len(found) == stages else f"{plural(len(found), 'stage')} ({spans(found)})"
            lead.append(f"{kind[:1].upper()}{kind[1:]} groups of {which} cross {between}.")
    return " ".join(lead)


def _groups(ranks: Sequence[RankPlace], degrees: Degrees) -> Iterator[tuple[str, list[RankPlace]]]:
    """Tensor, context, expert and data parallel groups, each with its kind."""
    keyed: dict[tuple[str, tuple[int, ...]], list[RankPlace]] = defaultdict(list)
    for rank in ranks:
        stage, tensor, context, data = rank.pipeline, rank.tensor, rank.context, rank.data
        if degrees.tensor > 1:
            keyed["tensor parallel", (stage, context, data)].append(rank)
        if degrees.context > 1:
            keyed["context parallel", (stage, tensor, data)].append(rank)
        if degrees.expert_block > 1:
            number = tensor + degrees.tensor * (context + degrees.context * data)
            keyed["expert parallel", (stage, number // degrees.expert_block)].append(rank)
        if degrees.data > 1:
            keyed["data parallel", (stage, tensor, context)].append(rank)
    yield from ((kind, members) for (kind, _), members in keyed.items())
