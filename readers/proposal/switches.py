"""Where nodes stand, from the switches that files draw over them, and what those switches pass up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cluster_models.cluster.switches import Switch
from readers.frame.facts import Fact, HostFact, Origin, SwitchFact
from readers.frame.findings import doubt
from readers.frame.host_lists import compress
from readers.proposal.claims import BLOCK, TREE, Claim
from readers.proposal.host_names import Hosts
from readers.proposal.values import Notes, ProposedNode

_RAILS_SHARE: Final = 0.5
_LONGEST: Final = 200
_MOST_LEVELS: Final = 9


def switch_claims(facts: Sequence[Fact], hosts: Hosts, notes: Notes) -> tuple[Claim, ...]:
    """Labels of nodes by the switches over them: leaf, level2, ..., and the blocks that may be NVLink domains."""
    by_file: dict[str, list[SwitchFact]] = {}
    for fact in facts:
        if isinstance(fact, SwitchFact):
            by_file.setdefault(fact.origin.file, []).append(fact)
    placed = {fact.origin.file for fact in facts if isinstance(fact, HostFact) and fact.labels.get("leaf")}
    """Files whose reader has put the hosts under leaves already."""
    found: list[Claim] = []
    for switches in by_file.values():
        found.extend(_blocks(switches, hosts))
        tree = [switch for switch in switches if not switch.domain]
        if switches[0].origin.file not in placed:
            found.extend(_places(tree, hosts, notes))
    return tuple(found)


def _blocks(switches: Sequence[SwitchFact], hosts: Hosts) -> Iterator[Claim]:
    for switch in switches:
        if switch.domain:
            for host in switch.hosts:
                if (node := hosts.named(host)) is not None:
                    yield Claim(node, "nvlink_domain", switch.name, switch.origin, BLOCK)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf, or the leaves of all rails that the same nodes hang on."""

    name: str
    members: tuple[str, ...]
    """Names of the switches."""
    origin: Origin


def _places(switches: Sequence[SwitchFact], hosts: Hosts, notes: Notes) -> Iterator[Claim]:
    over: dict[str, list[SwitchFact]] = {}
    for switch in switches:
        for node in dict.fromkeys(node for host in switch.hosts if (node := hosts.named(host)) is not None):
            over.setdefault(node, []).append(switch)
    several = [node for node, leaves in over.items() if len(leaves) > 1]
    rails = len(several) > _RAILS_SHARE * len(over)
    joined = _joined(over) if rails else {}
    above = _above(switches)
    for node, leaves in over.items():
        if len(leaves) > 1 and not rails:
            names = " and ".join(leaf.name for leaf in leaves)
            sentence = f"{node} hangs on {names}: it gets no leaf, and its links count as those between leaves"
            notes.doubts.append(doubt("two-leaves", leaves[0].origin, sentence, "correct the file"))
            continue
        leaf = joined.get(leaves[0].name) or _Leaf(leaves[0].name, (leaves[0].name,), leaves[0].origin)
        yield Claim(node, "labels.leaf", leaf.name, leaf.origin, TREE)
        for level, switch in enumerate(_chain(leaf.members[0], above), start=2):
            yield Claim(node, f"labels.level{level}", switch.name, switch.origin, TREE)


def _above(switches: Sequence[SwitchFact]) -> dict[str, SwitchFact]:
    """The one switch over each switch; of several (a fat tree) none."""
    over: dict[str, list[SwitchFact]] = {}
    for switch in switches:
        for below in switch.switches:
            over.setdefault(below, []).append(switch)
    return {
        below: found[0]
        for below, found in over.items()
        if len(found) == 1 and found[0].name != below and (found[0].level == 0 or found[0].level > 1)
    }


def _chain(name: str, above: Mapping[str, SwitchFact]) -> Iterator[SwitchFact]:
    seen = {name}
    while (switch := above.get(name)) is not None and switch.name not in seen and len(seen) < _MOST_LEVELS:
        yield switch
        name = switch.name
        seen.add(name)


def _joined(over: Mapping[str, Sequence[SwitchFact]]) -> dict[str, _Leaf]:
    """Leaves that nodes join, by the name of each: the rails of one group of nodes are one place."""
    import networkx as nx  # noqa: PLC0415 - a service starts sooner without

    graph: nx.Graph[str] = nx.Graph()
    origins: dict[str, Origin] = {}
    for leaves in over.values():
        nx.add_path(graph, [leaf.name for leaf in leaves])
        for leaf in leaves:
            origins.setdefault(leaf.name, leaf.origin)
    groups = [tuple(sorted(component)) for component in nx.connected_components(graph)]
    return {
        name: _Leaf(_group_name(members), members, origins[members[0]]) for members in groups for name in members
    }


def _group_name(members: Sequence[str]) -> str:
    """One short name of several switches."""
    try:
        listed = compress(members)
    except ValueError:
        listed = "+".join(members)
    return listed if len(listed) <= _LONGEST else f"{members[0]}..{members[-1]}"[:_LONGEST]


def propose_switches(facts: Sequence[Fact], nodes: Sequence[ProposedNode]) -> tuple[tuple[Switch, Origin], ...]:
    """Leaves whose way up is narrower than what hangs on them, by their ports."""
    leaves = {node.fields["labels.leaf"].value for node in nodes if "labels.leaf" in node.fields}
    found: dict[str, tuple[Switch, Origin]] = {}
    for fact in facts:
        if not (isinstance(fact, SwitchFact) and fact.name in leaves and fact.up_ports and fact.down_ports):
            continue
        if fact.down_ports > fact.up_ports:
            ratio = fact.down_ports / fact.up_ports
            found.setdefault(fact.name, (Switch("leaf", fact.name, oversubscription=ratio), fact.origin))
    return tuple(found[name] for name in sorted(found))
