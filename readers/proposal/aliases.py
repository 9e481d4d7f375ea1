"""One node, many names: host, FQDN, the names of Slurm and Kubernetes, instance id, address, GUID of a port."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from readers.frame.facts import Name, NameKind

_GUID: Final = re.compile(r"(?:0x)?([0-9a-f]{8,16})|((?:[0-9a-f]{2,4}:){3,7}[0-9a-f]{2,4})")
_ADDRESS: Final = re.compile(r"[\d.]+|[\da-f:]*:[\da-f:.]*")
_OF_ADDRESS: Final = re.compile(r"ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})(?:\..*)?", re.ASCII | re.DOTALL)
"""As AWS names its machines."""
_LONGEST: Final = 200
_GUID_KEY: Final = "guid:"
_NO_HOST: Final = frozenset({"", "localhost", "localhost.localdomain", "unknown", "n/a", "none", "(null)", "node"})
_PREFERRED: Final = (
    NameKind.SLURM,
    NameKind.KUBERNETES,
    NameKind.HOST,
    NameKind.FQDN,
    NameKind.MPI,
    NameKind.INSTANCE,
)
"""Kinds of names in the order of preference for a node's name: those that launchers take first.

Pods, addresses and ports name no node.
"""


@dataclass(frozen=True, slots=True)
class AliasTable:
    """Every name of every node -> node; ``ambiguous`` names resolve to nothing."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def node(self, name: str) -> str | None:
        """The node of that name, exactly or but for case, domain or the spelling of a GUID."""
        if name not in self.ambiguous and (exact := self.nodes.get(name)) is not None:
            return exact
        if not (self.nodes or self.ambiguous):
            return None
        for spelling in spellings(name):
            if spelling in self.ambiguous:
                return None
            if (found := self.nodes.get(spelling)) is not None:
                return found
        return None

    def candidates(self, name: str) -> tuple[str, ...]:
        """The nodes that an ambiguous name may mean."""
        for spelling in spellings(name):
            if spelling in self.ambiguous:
                return self.ambiguous[spelling]
        return ()


def is_host(name: str) -> bool:
    """Whether the text can be the name of one host: "localhost" is any, and names are short and can be printed."""
    return name.strip().casefold() not in _NO_HOST and len(name) <= _LONGEST and name.isprintable()


def spellings(name: str) -> tuple[str, ...]:
    """Spellings of a name in a table, the most exact first: the first label of an FQDN, the address in a name."""
    plain = name.strip().casefold()
    return tuple(dict.fromkeys((name, plain, *_shorter(plain))))


def _shorter(plain: str) -> list[str]:
    """The spelling of a GUID, the first label of an FQDN, or the address that a name in lower case is made of."""
    found = []
    guid = _GUID.fullmatch(plain)
    if guid is not None:
        found.append(_GUID_KEY + (guid[1] or guid[2].replace(":", "")).lstrip("0"))
    elif "." in plain and not _ADDRESS.fullmatch(plain):
        found.append(plain.partition(".")[0])
    if address := address_in(plain):
        found.append(address)
    return found


def address_in(name: str) -> str:
    """The address that a name such as "ip-10-1-0-11.ec2.internal" is made of; empty where it is made of none."""
    found = _OF_ADDRESS.fullmatch(name.strip().casefold()) if name[:3].casefold() == "ip-" else None
    return ".".join(found.groups()) if found is not None and all(int(part) < 256 for part in found.groups()) else ""


def alias_table(groups: Iterable[Sequence[Name]], *, given: AliasTable, known: Sequence[str] = ()) -> AliasTable:
    """The table of all names that stand in ``groups``, each the names of one host as one record gives them.

    Groups that share a name are one host.  A short name is the host of the one FQDN that begins with it; with
    several, it is ambiguous.  A node that ``given`` or ``known`` has keeps its name.
    """
    hosts = _joined([[name for name in group if is_host(name.text)] for group in groups])
    fixed = AliasTable(
        {**{spelling: name for name in known for spelling in (name, name.casefold())}, **given.nodes}
    )
    nodes: dict[str, set[str]] = {}
    for names in hosts:
        already = sorted({node for name in names if (node := fixed.node(name.text)) is not None})
        owners = already or [node for node in [_node_name(names)] if node]
        for name in names:
            own = fixed.node(name.text)
            for spelling in spellings(name.text):
                nodes.setdefault(spelling, set()).update([own] if own is not None else owners)
    for spelling, node in fixed.nodes.items():
        nodes[spelling] = {node}
    for node in [*known, *sorted(set(given.nodes.values()))]:
        for spelling in spellings(node):
            nodes.setdefault(spelling, set()).add(node)
    single = {spelling: next(iter(owners)) for spelling, owners in nodes.items() if len(owners) == 1 and spelling}
    several = {spelling: tuple(sorted(owners)) for spelling, owners in nodes.items() if len(owners) > 1}
    return AliasTable(single, {**several, **given.ambiguous})


def _node_name(names: Sequence[Name]) -> str:
    """The name that the node of these names gets; empty where none of them names a node."""
    usable = [name for name in names if name.kind in _PREFERRED]
    if not usable:
        return ""
    best = min(usable, key=lambda name: (_PREFERRED.index(name.kind), len(name.text), name.text))
    return best.text.strip()


def _joined(groups: Sequence[Sequence[Name]]) -> list[list[Name]]:
    """Groups that share a name, or a short name (or an address) and the only name made of it, as one; sorted."""
    by_key: dict[str, set[Name]] = {}
    paths: list[list[str]] = []
    long: dict[str, set[str]] = {}
    for group in groups:
        keys = []
        for name in group:
            plain = name.text.strip().casefold()
            shorter = _shorter(plain)
            is_guid = bool(shorter) and shorter[0].startswith(_GUID_KEY)
            key = shorter[0] if is_guid else plain  # case and the spelling of a GUID tell no names apart
            keys.append(key)
            by_key.setdefault(key, set()).add(name)
            for other in () if is_guid else shorter:
                if other != key:
                    long.setdefault(other, set()).add(key)
        if len(keys) > 1:
            paths.append(keys)
    hosts = _connected(by_key, paths, long) if paths or by_key.keys() & long.keys() else [[key] for key in by_key]
    return [[name for key in keys for name in sorted(by_key[key], key=_order)] for keys in sorted(hosts)]


def _connected(
    by_key: dict[str, set[Name]], paths: Sequence[Sequence[str]], long: Mapping[str, set[str]]
) -> list[list[str]]:
    """Keys that paths or the only ``long`` name of a short one join; short names of several hosts go."""
    import networkx as nx  # noqa: PLC0415 - takes 0.2 s, and most uploads have one name a host

    graph: nx.Graph[str] = nx.Graph()
    for path in paths:
        nx.add_path(graph, path)
    for short, fqdns in long.items():
        if short not in by_key:
            continue
        if len(fqdns) == 1 or all(key in graph and nx.has_path(graph, min(fqdns), key) for key in sorted(fqdns)):
            graph.add_edge(short, min(fqdns))
        elif short not in graph:
            del by_key[short]  # any of several: a host of its own it is not
    alone = ([key] for key in by_key if key not in graph)
    return [*alone, *(sorted(component) for component in nx.connected_components(graph))]


def _order(name: Name) -> tuple[str, str]:
    return name.kind, name.text
