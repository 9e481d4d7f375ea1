"""NVIDIA NetQ: the compute nodes of NVLink domains, and the graph of an Ethernet fabric with its tiers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cluster_models.cluster.topology import NodeState
from readers.frame.facts import HostFact, Name, NameKind, SwitchFact
from readers.frame.findings import Finding, refusal
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source, origin_of

_HEALTH: Final = {
    "HEALTHY": NodeState.READY,
    "DEGRADED": NodeState.DEGRADED,
    "DEGRADED_BW": NodeState.DEGRADED,
    "UNHEALTHY": NodeState.FAILED,
    "FAILED": NodeState.FAILED,
    "NONOPERATIONAL": NodeState.FAILED,
}


def is_compute_nodes(tree: Any) -> bool:
    """Whether a value is NetQ's list of compute nodes."""
    return (
        isinstance(tree, list)
        and bool(tree)
        and all(isinstance(item, dict) and "DomainUUID" in item and "GpuIDList" in item for item in tree)
    )


def read_compute_nodes(source: Source, lines: tuple[Line, ...]) -> Contents:
    """A host each, with its GPUs counted and its NVLink domain."""
    if not is_compute_nodes(source.tree):
        return _not_netq()
    where = _lines_of(lines, '"Name":')
    facts: list[HostFact] = []
    refusals: list[Finding] = []
    for number, item in enumerate(source.tree):
        name, gpus = item.get("Name"), item.get("GpuIDList")
        line = where.get(str(name), 1)
        if not isinstance(name, str) or not name:
            reason = f"[{number}] has no name"
            refusals.append(refusal(line, line, reason, "give the compute node a name in NetQ, then send it again"))
            continue
        health = str(item.get("Health") or "").upper()
        state = _HEALTH.get(health, NodeState.UNKNOWN) if health else None
        domain = item.get("DomainUUID")
        facts.append(
            HostFact(
                origin_of(source, line, path=f"[{number}]"),
                (Name(NameKind.HOST, name),),
                gpu_count=len(gpus) if isinstance(gpus, list) and gpus else None,
                scale_up_domain=domain if isinstance(domain, str) and domain else None,
                state=state,
            )
        )
    return Contents(tuple(facts), tuple(refusals))


def _not_netq() -> Contents:
    return Contents((), (refusal(1, 1, "the value is not NetQ output", "send NetQ's answer as it came"),))


def _lines_of(lines: Sequence[Line], key: str) -> dict[str, int]:
    """The first line on which a key has each value, in JSON that is written over several lines."""
    where: dict[str, int] = {}
    for line in lines:
        text = line.text.strip()
        if text.startswith(key):
            where.setdefault(text.removeprefix(key).strip(' ",'), line.number)
    return where


def is_topology_graph(tree: Any) -> bool:
    """Whether a value is NetQ's graph: one object with links and nodes, alone or in a list."""
    return any(True for _ in _graphs(tree))


def _graphs(tree: Any) -> Iterator[Mapping[str, Any]]:
    for item in tree if isinstance(tree, list) else [tree]:
        if isinstance(item, dict) and isinstance(item.get("nodes"), list) and isinstance(item.get("links"), list):
            tiers = [tier for tier in item["nodes"] if isinstance(tier, dict)]
            if any("compounded_nodes" in tier or "tier" in tier for tier in tiers):
                yield item


def read_topology_graph(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Switches with level, hosts and cables up and down; hosts with their leaf."""
    where = _lines_of(lines, '"name":')
    facts: list[SwitchFact | HostFact] = []
    for graph in _graphs(source.tree):
        devices = dict(_devices(graph))
        facts.extend(_drawn(source, devices, _cables(graph, devices), where))
    return Contents(tuple(facts)) if facts else _not_netq()


def _devices(graph: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, int]]]:
    """Identifier of each device: its name, and its tier from 1 at the leaves; 0 for what is not a switch."""
    for tier in graph["nodes"]:
        inner = tier.get("compounded_nodes") if isinstance(tier, dict) else None
        for device in inner if isinstance(inner, list) else ():
            if isinstance(device, dict) and isinstance(device.get("id"), str):
                level = device.get("tier")
                tier_of_switch = level if device.get("device_type") == "switch" and isinstance(level, int) else 0
                yield device["id"], (str(device.get("name") or device["id"]), max(tier_of_switch, 0))


def _cables(graph: Mapping[str, Any], devices: Mapping[str, object]) -> dict[str, dict[str, int]]:
    """Cables between devices, both ways; a bundle counts all its cables."""
    cables: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for link in graph["links"]:
        if not isinstance(link, dict):
            continue
        ends, bundle, size = (link.get("src"), link.get("target")), link.get("compounded_links"), link.get("size")
        if not all(isinstance(end, str) and end in devices for end in ends):
            continue
        count = len(bundle) if isinstance(bundle, list) and bundle else size if isinstance(size, int) else 1
        for here, there in (ends, ends[::-1]):
            cables[str(here)][str(there)] += max(count, 1)
    return cables


def _drawn(
    source: Source,
    devices: Mapping[str, tuple[str, int]],
    cables: Mapping[str, Mapping[str, int]],
    where: Mapping[str, int],
) -> Iterator[SwitchFact | HostFact]:
    for device, (name, level) in devices.items():
        ends = {devices[end]: count for end, count in cables.get(device, {}).items()}
        origin = origin_of(source, where.get(name, 1))
        if not level:
            leaves = sorted(far for far, tier in ends if tier)
            if leaves:
                labels = {"leaf": "+".join(leaves)}
                yield HostFact(origin, (Name(NameKind.HOST, name),), labels=labels)
            continue
        yield SwitchFact(
            origin,
            name,
            tuple(far for far, tier in ends if not tier),
            tuple(far for far, tier in ends if 0 < tier < level),
            level,
            up_ports=sum(count for (_, tier), count in ends.items() if tier > level),
            down_ports=sum(count for (_, tier), count in ends.items() if tier < level),
            alias=device if device != name else "",
        )


FORMATS: Final = (
    Format("netq-nodes", "NVIDIA NetQ compute nodes", "fabric", read_compute_nodes, (), is_compute_nodes),
    Format("netq-graph", "NVIDIA NetQ topology graph", "fabric", read_topology_graph, (), is_topology_graph),
)
