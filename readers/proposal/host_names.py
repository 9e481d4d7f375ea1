"""Nodes that facts speak of, under whatever names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from cluster_models.cluster.catalogue import NodeKind, node_kinds
from readers.frame.facts import (
    Fact,
    HostFact,
    MatrixFact,
    Memory,
    Name,
    NameKind,
    PortFact,
    RunFact,
    SwitchFact,
    WiringFact,
)
from readers.proposal.aliases import AliasTable, is_host
from readers.proposal.file_names import host_hinted, nodes_hinted
from readers.proposal.values import ALIAS, EVERY_NODE, Answers, Notes

_MOST_CHOICES: Final = 20
_GUID: Final = re.compile(r"0x[0-9a-fA-F]{12,16}")


def name_groups(facts: Sequence[Fact]) -> Iterator[Sequence[Name]]:
    """The names of one host each, as one record gives them; names that stand alone come once."""
    alone: dict[str, None] = {}
    for fact in facts:
        match fact:
            case HostFact():
                yield fact.names
            case SwitchFact():
                alone.update(dict.fromkeys(fact.hosts))
            case _:
                alone.update(dict.fromkeys(hosts_said(fact)))
    yield from ((_named(host),) for host in alone)


def hosts_said(fact: Fact) -> tuple[str, ...]:
    """The hosts that a fact other than of a host or switch names."""
    match fact:
        case RunFact():
            return fact.hosts
        case MatrixFact():
            between = () if fact.between == "gpus" else tuple(dict.fromkeys((*fact.rows, *fact.columns)))
            own = () if fact.host is None else (fact.host,)
            return (*own, *between, *dict.fromkeys(fact.hosts.values()))
        case HostFact() | SwitchFact():
            return ()
        case _:
            return () if fact.host is None else (fact.host,)


def _named(host: str) -> Name:
    if _GUID.fullmatch(host):
        return Name(NameKind.PORT_GUID, host)
    return Name(NameKind.FQDN if "." in host else NameKind.HOST, host)


@cache
def instance_kind(instance_type: str) -> NodeKind | None:
    """The node kind that a cloud sells as this instance type, if the catalogue has it."""
    name = instance_type.removeprefix("Standard_").casefold()
    kinds = node_kinds().values()
    return next((kind for kind in kinds if name in kind.name.casefold().split(" / ")), None) if name else None


def shows_a_node(fact: Fact) -> bool:
    """Whether hosts that a fact names are GPU nodes by what it says of them."""
    match fact:
        case HostFact():
            return bool(fact.gpu_count or fact.gpu_product or instance_kind(fact.instance_type))
        case RunFact() | MatrixFact():
            return fact.memory is not Memory.HOST
        case WiringFact():
            return True
        case _:
            return False


def lacks_its_host(fact: Fact) -> bool:
    """Whether a fact is of the GPUs or cards of a host that its file does not name; health may be of any host."""
    match fact:
        case HostFact():
            return not any(is_host(name.text) for name in fact.names)
        case PortFact():
            return fact.host is None
        case _:
            return False


@dataclass(frozen=True, slots=True)
class Hosts:
    """Names resolved: ``table`` of all names, ``nodes`` there are, ``answers`` of the sender."""

    table: AliasTable
    nodes: tuple[str, ...]
    answers: Answers
    every: frozenset[str]
    """The nodes again, to look names up."""
    _seen: dict[str, str | None] = field(default_factory=dict, repr=False, compare=False)
    """Names looked up before: tables name each host thousands of times."""

    def named(self, name: str) -> str | None:
        """The node of that name, if there is one."""
        if name not in self._seen:
            found = self.table.node(name) if is_host(name) else None
            self._seen[name] = found if found in self.every else None
        return self._seen[name]

    def of_record(self, fact: HostFact) -> tuple[str, ...]:
        """The node of a host's record; of one without a name, the answer for its file."""
        found = {node for name in fact.names if (node := self.named(name.text)) is not None}
        if found or any(is_host(name.text) for name in fact.names):
            return tuple(sorted(found)) if len(found) == 1 else ()
        return self.of_file(fact.origin.file)

    def of_file(self, file: str) -> tuple[str, ...]:
        """The node that the sender says a file is from; all, where it shows one of many equal ones."""
        answer = self.answers.hosts.get(file)
        if answer == EVERY_NODE:
            return self.nodes
        node = None if answer is None else self.named(answer)
        return () if node is None else (node,)

    def of_fact(self, host: str | None, file: str, notes: Notes) -> tuple[str, ...]:
        """The node of a fact inside one host; asks where nothing says which."""
        if host is not None and is_host(host):
            if (node := self.named(host)) is not None:
                return (node,)
            self._ask(host, notes)
            return ()
        if not (found := self.of_file(file)):
            hinted = self.hinted(file)
            choices = (*hinted, EVERY_NODE, *(node for node in self.nodes[:_MOST_CHOICES] if node not in hinted))
            sentence = (
                f"which node is {file} from? Give its name, or {EVERY_NODE} where it shows one of many equal nodes"
            )
            notes.ask(f"host:{file}", sentence, choices)
        return found

    def hinted(self, file: str) -> tuple[str, ...]:
        """The nodes that the name of a file speaks of; where no node is known, what looks like a host in it."""
        if self.nodes:
            return nodes_hinted(file, self.named)[:_MOST_CHOICES]
        host = host_hinted(file)
        return () if host is None else (host,)

    def all_named(self, names: Sequence[str], notes: Notes) -> tuple[str, ...]:
        """The nodes of these names; none, and a question for each that is not clear, where one is missing."""
        found = [self.named(name) for name in names]
        for name, node in zip(names, found, strict=True):
            if node is None:
                self._ask(name, notes)
        return tuple(node for node in found if node is not None) if None not in found else ()

    def _ask(self, name: str, notes: Notes) -> None:
        if candidates := self.table.candidates(name):
            sentence = f"which node is {name}? Several have a name that begins so"
            notes.ask(f"{ALIAS}{name}", sentence, candidates[:_MOST_CHOICES])
        elif is_host(name):
            sentence = f"which node is {name}? No node goes by that name"
            notes.ask(f"{ALIAS}{name}", sentence, self.nodes[:_MOST_CHOICES])
