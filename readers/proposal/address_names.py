"""Names that clouds make of addresses: "ip-10-1-0-11" is the host with the address 10.1.0.11."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from readers.frame.facts import Fact, HostFact, Name, NameKind, Origin, SwitchFact
from readers.frame.findings import Finding, doubt
from readers.proposal.aliases import address_in
from readers.proposal.host_names import Hosts, hosts_said
from readers.proposal.values import ProposedNode


@dataclass(frozen=True, slots=True)
class ByAddress:
    """A host that is called by its address, and the node that has it."""

    name: str
    node: str
    origin: Origin


def named_by_address(facts: Sequence[Fact], hosts: Hosts, learned: Collection[str]) -> tuple[ByAddress, ...]:
    """Hosts of which only their address tells the node; ``learned`` names, and those of records, are known."""
    records = {name.text for fact in facts if isinstance(fact, HostFact) for name in fact.names}
    known = {_label(name) for name in (*records, *learned)}
    found: dict[str, ByAddress] = {}
    for fact in facts:
        for host in fact.hosts if isinstance(fact, SwitchFact) else hosts_said(fact):
            if host in found or not address_in(host) or _label(host) in known:
                continue
            node = hosts.named(host)
            if node is not None and _label(node) != _label(host):
                found[host] = ByAddress(host, node, fact.origin)
    return tuple(found.values())


def _label(name: str) -> str:
    return name.casefold().partition(".")[0] if address_in(name) else name.casefold()


def address_doubts(found: Sequence[ByAddress]) -> Iterator[Finding]:
    """One doubt for all of them."""
    if not found:
        return
    first, more = found[0], len(found) - 1
    others = f", and {more} more so" if more else ""
    sentence = f"{first.name} is taken for {first.node}, which has the address {address_in(first.name)}{others}"
    remedy = f"if that is another host, say which: alias:{first.name}"
    yield doubt("named-by-address", first.origin, sentence, remedy)


def with_names(nodes: Sequence[ProposedNode], found: Sequence[ByAddress]) -> tuple[ProposedNode, ...]:
    """The nodes with these names among their aliases."""
    names: dict[str, list[Name]] = {}
    for each in found:
        names.setdefault(each.node, []).append(Name(NameKind.HOST, each.name))
    return tuple(
        replace(node, aliases=(*node.aliases, *names[node.name])) if node.name in names else node for node in nodes
    )
