"""Cluster models of topograph: a tree of switches and the blocks of nodes below its leaves, as YAML.

Three generations of the format: ``switches`` as a mapping with ``blocks`` that name their switch, and ``switches``
as a list with ``capacity_blocks`` that the leaf names.  Nodes stand in brackets ("n[01-08]").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from readers.frame.facts import Fact, HostFact, Name, NameKind, Origin, SwitchFact
from readers.frame.findings import Finding, doubt, note, refusal
from readers.frame.host_lists import expand
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source
from readers.frame.trees import items, mapping, plain

_NAMED: Final = re.compile(r"^(?:\s+([\w.-]+):|\s*-\s+(?:switch|name):\s*[\"']?([\w.-]+)[\"']?)\s*$")
_ZONE: Final = "topology.kubernetes.io/zone"
_MOST_LEVELS: Final = 9
_MOST_NODES: Final = 50_000


@dataclass(slots=True)
class _Switch:
    """One switch of the model; ``level`` 0 where it stands on a cycle."""

    name: str
    line: int
    switches: tuple[str, ...] = ()
    zone: str = ""
    parent: str = ""
    blocks: tuple[str, ...] = ()
    nodes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Block:
    """Nodes below one leaf, in one scale-up domain."""

    path: str
    name: str
    switch: str
    nodes: tuple[str, ...]
    domain: str
    part: str
    product: str


def read_topograph(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Switches, scale-up domains and the place of every node; a note says that nobody measured this."""
    return _Model(source, lines).understood()


class _Model:
    """The model while it is read."""

    def __init__(self, source: Source, lines: tuple[Line, ...]) -> None:
        self.source = source
        self.first = lines[0].number if lines else 1
        self.where: dict[str, int] = {}
        for line in lines:
            found = _NAMED.match(line.text)
            if found is not None:
                self.where.setdefault(found[1] or found[2], line.number)
        self.refusals: list[Finding] = []
        self.doubts: list[Finding] = []
        tree = mapping(source.tree)
        self.switches = {switch.name: switch for switch in self._switches(tree.get("switches"))}
        self._join_switches()
        self.blocks = list(self._blocks(tree))

    def understood(self) -> Contents:
        """All facts, with what was refused."""
        self.doubts.append(
            note(
                "model-not-measurement",
                self.first,
                "a topograph model is written by hand: nothing in it was measured or discovered",
            )
        )
        hosts = self._hosts()
        levels = self._levels()
        facts: list[Fact] = [
            SwitchFact(
                self._origin(switch.name, f"switches.{switch.name}"),
                switch.name,
                tuple(switch.nodes),
                switch.switches,
                level=levels.get(switch.name, 0),
            )
            for switch in self.switches.values()
        ]
        facts += self._domains()
        facts += hosts
        return Contents(tuple(facts), tuple(self.refusals), tuple(self.doubts))

    def _switches(self, value: object) -> Iterator[_Switch]:
        if isinstance(value, Mapping):
            pairs = [(str(name), entry) for name, entry in value.items()]
        else:
            pairs = [(plain(mapping(entry).get("name")), entry) for entry in items(value)]
        for name, entry in pairs:
            if not name:
                self._refuse(self.first, "switches", "a switch has no name", "name every switch")
                continue
            fields = mapping(entry)
            labels = mapping(fields.get("labels")) or mapping(fields.get("metadata"))
            yield _Switch(
                name,
                self.where.get(name, self.first),
                tuple(dict.fromkeys(text for item in items(fields.get("switches")) if (text := plain(item)))),
                plain(labels.get(_ZONE)) or plain(labels.get("zone")),
                blocks=tuple(plain(item) for item in items(fields.get("capacity_blocks"))),
            )

    def _join_switches(self) -> None:
        """Parents, and the switches that are only named below another one; the first parent stands."""
        for switch in list(self.switches.values()):
            for name in switch.switches:
                below = self.switches.setdefault(name, _Switch(name, switch.line))
                if below.parent and below.parent != switch.name:
                    reason = f"switch {name} hangs below {below.parent} and below {switch.name}"
                    self._refuse(switch.line, name, reason, "give each switch one switch above it")
                elif not below.parent:
                    below.parent = switch.name

    def _blocks(self, tree: Mapping[Any, Any]) -> Iterator[_Block]:
        above = {block: switch.name for switch in self.switches.values() for block in switch.blocks}
        told = 0
        for key in ("blocks", "capacity_blocks"):
            for number, entry in enumerate(items(tree.get(key))):
                fields = mapping(entry)
                notes = {str(name): plain(item) for name, item in mapping(fields.get("annotations")).items()}
                name = plain(fields.get("name"))
                path = f"{key}[{number}]"
                nodes = self._expand(fields.get("nodes"), path, name)
                told += len(nodes)
                if told > _MOST_NODES:
                    reason = f"the model has more than {_MOST_NODES:,} nodes"
                    self._refuse(self.first, path, reason, "send the part of the model that you plan for")
                    return
                yield _Block(
                    path,
                    name,
                    plain(fields.get("switch")) or above.get(name, ""),
                    nodes,
                    _ending(notes, "/domain") or plain(fields.get("nvlink")),
                    _ending(notes, "/sub-domain"),
                    plain(fields.get("type")),
                )

    def _expand(self, value: object, path: str, name: str) -> tuple[str, ...]:
        nodes: list[str] = []
        for item in items(value):
            try:
                nodes += expand(plain(item))
            except ValueError as error:
                line = self.where.get(name, self.first)
                self._refuse(line, path, f"cannot read the nodes {plain(item)[:60]!r}: {error}", "write n[01-08]")
        return tuple(nodes)

    def _hosts(self) -> list[HostFact]:
        """A fact for each node; one that two blocks name stays with the first."""
        seen: dict[str, str] = {}
        hosts = []
        for block in self.blocks:
            line = self.where.get(block.switch or block.name, self.first)
            if block.switch:
                self.switches.setdefault(block.switch, _Switch(block.switch, line))
            place = self._place(block)
            for node in block.nodes:
                if node in seen:
                    reason = f"node {node} stands in {seen[node]} and in {block.path}"
                    self._refuse(line, block.path, reason, "list each node once")
                    continue
                seen[node] = block.path
                if block.switch:
                    self.switches[block.switch].nodes.append(node)
                origin = Origin(self.source.name, line, line, block.path)
                hosts.append(
                    HostFact(
                        origin,
                        (Name(NameKind.HOST, node),),
                        gpu_product=block.product or None,
                        scale_up_domain=block.domain or None,
                        labels=place,
                    )
                )
        return hosts

    def _place(self, block: _Block) -> dict[str, str]:
        """The switches above a block, from its leaf up, and the zone that the nearest of them names."""
        place: dict[str, str] = {}
        name, seen = block.switch, set[str]()
        while name and name not in seen:
            seen.add(name)
            if len(seen) <= _MOST_LEVELS:
                place[f"level{len(seen)}"] = name
            switch = self.switches[name]
            if switch.zone:
                place.setdefault("zone", switch.zone)
            name = switch.parent
        if block.switch:
            place["leaf"] = block.switch
        if block.part:
            place["block"] = block.part
        return place

    def _domains(self) -> list[SwitchFact]:
        """The scale-up domains, as switches of their own kind."""
        members: dict[str, list[str]] = {}
        leaves: dict[str, str] = {}
        parts: dict[str, set[str]] = {}
        for block in self.blocks:
            if block.domain:
                members.setdefault(block.domain, []).extend(block.nodes)
                leaves.setdefault(block.domain, block.switch or block.name)
                parts.setdefault(block.domain, set()).add(block.part)
        for domain, found in parts.items():
            if len(found) > 1:
                self.doubts.append(
                    doubt(
                        "parts-of-domain",
                        self.first,
                        f"domain {domain} has {len(found)} sub-domains:"
                        " which of both is the NVLink domain is not said",
                    )
                )
        return [
            SwitchFact(self._origin(leaves[name], "blocks"), name, tuple(dict.fromkeys(hosts)), (), domain=True)
            for name, hosts in members.items()
        ]

    def _levels(self) -> dict[str, int]:
        """Levels from the nodes up (leaf = 1), found leaf by leaf; switches on a cycle get none."""
        waiting = {name: len(switch.switches) for name, switch in self.switches.items()}
        above: dict[str, list[str]] = {}
        for switch in self.switches.values():
            for name in switch.switches:
                above.setdefault(name, []).append(switch.name)
        levels = {name: 1 for name, count in waiting.items() if not count}
        ready = list(levels)
        for name in ready:
            for upper in above.get(name, ()):
                waiting[upper] -= 1
                levels[upper] = max(levels.get(upper, 0), levels[name] + 1)
                if not waiting[upper]:
                    ready.append(upper)
        done = set(ready)
        round_about = sorted(self.switches.keys() - done)
        if round_about:
            reason = f"the switches {', '.join(round_about[:5])} hang below themselves"
            self._refuse(self.switches[round_about[0]].line, "switches", reason, "make the switches a tree")
        return {name: level for name, level in levels.items() if name in done}

    def _origin(self, name: str, path: str) -> Origin:
        line = self.where.get(name, self.first)
        return Origin(self.source.name, line, line, path)

    def _refuse(self, line: int, shown: str, reason: str, remedy: str) -> None:
        self.refusals.append(refusal(line, line, reason, remedy, shown[:120]))


def _fits(tree: object) -> bool:
    """Whether a tree is a model: switches, with blocks that hold nodes."""
    model = mapping(tree)
    blocks = items(model.get("blocks")) or items(model.get("capacity_blocks"))
    return "switches" in model and any("nodes" in mapping(block) for block in blocks)


def _ending(notes: Mapping[str, str], tail: str) -> str:
    """The annotation whose key ends so; the site chooses what stands before."""
    return next((value for key, value in notes.items() if key.endswith(tail)), "")


FORMAT: Final = Format(
    name="topograph-model",
    known_as="cluster model of topograph (switches and blocks)",
    family="topograph",
    read=read_topograph,
    fits=_fits,
)
