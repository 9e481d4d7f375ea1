"""Proposal from several files together: names resolved, facts merged, samples made, questions asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from cluster_models.cluster.topology import MOST_NODES, Cluster
from readers.frame.facts import Fact, HealthFact, HostFact, Name, NameKind, SwitchFact
from readers.frame.reading import Reading
from readers.proposal.address_names import address_doubts, named_by_address, with_names
from readers.proposal.aliases import AliasTable, alias_table, is_host
from readers.proposal.doubts import doubts_across
from readers.proposal.host_names import Hosts, hosts_said, lacks_its_host, name_groups, shows_a_node
from readers.proposal.nodes import propose_nodes
from readers.proposal.samples import merged, propose_samples, rejected_places
from readers.proposal.switches import propose_switches, switch_claims
from readers.proposal.values import ALIAS, EVERY_NODE, Answers, Notes, Proposal

_FAR_TOO_MANY = 16 * MOST_NODES
_NO_NODE = frozenset({NameKind.POD, NameKind.ADDRESS, NameKind.PORT_GUID})


def combine(
    readings: Sequence[Reading], *, aliases: AliasTable, known: Cluster | None, answers: Answers
) -> Proposal:
    """The proposal of all files together; their order does not matter.

    ``aliases`` are names that are stored or that the sender gives, ``known`` the cluster as it is.
    """
    readings = sorted(readings, key=lambda reading: reading.file)
    understood = [found for reading in readings for _, found in reading.sections]
    facts = [fact for found in understood for fact in found.facts]
    doubts = [doubt for found in understood for doubt in found.doubts]
    stored = () if known is None else tuple(node.name for node in known.nodes)
    if not (stored or answers.nodes or answers.hosts) and (count := _far_too_many(facts)):
        return Proposal(doubts=tuple(doubts), too_many_nodes=count)
    table = _with_answers(alias_table(_groups(facts, answers), given=aliases, known=stored), answers)
    notes = Notes()
    nodes_named = _nodes(facts, table, stored, answers)
    if len(nodes_named) > MOST_NODES:  # nothing can come of them, so nothing is worked out for each
        return Proposal(doubts=tuple(doubts), too_many_nodes=len(nodes_named))
    hosts = Hosts(table, nodes_named, answers, frozenset(nodes_named))
    _note_strangers(facts, hosts, notes)
    by_address = named_by_address(facts, hosts, [*aliases.nodes, *_chosen(answers)])
    notes.doubts.extend(address_doubts(by_address))
    nodes = propose_nodes(facts, switch_claims(facts, hosts, notes), hosts, known=known, notes=notes)
    nodes = with_names(nodes, by_address)
    samples = propose_samples(facts, hosts, rejected_places(facts, doubts, answers.accepted), nodes, notes)
    across, samples = doubts_across(facts, nodes, samples, answers.accepted)
    samples = merged(samples)
    return Proposal(
        nodes=nodes,
        switches=propose_switches(facts, nodes),
        samples=samples,
        kept_aside=tuple(notes.kept_aside),
        health=tuple(fact for fact in facts if isinstance(fact, HealthFact)),
        conflicts=tuple(notes.conflicts),
        questions=tuple(notes.waiting[key] for key in sorted(notes.waiting)),
        doubts=(*doubts, *notes.doubts, *across),
        passed_over={field: tuple(names) for field, names in notes.passed_over.items()},
    )


def _far_too_many(facts: Sequence[Fact]) -> int:
    """Hosts of a tree of switches alone, where they are many times the nodes of a cluster; else 0.

    Aliases of so many names would take minutes, and no cluster comes of them.
    """
    if any(shows_a_node(fact) for fact in facts):
        return 0
    names = {name for fact in facts for name in _host_names(fact)[: 1 if isinstance(fact, HostFact) else None]}
    return len(names) if len(names) > _FAR_TOO_MANY else 0


def _with_answers(table: AliasTable, answers: Answers) -> AliasTable:
    """The table with what answers say, "alias:NAME" -> node: of that name alone, not of others that begin so."""
    chosen = _chosen(answers)
    chosen |= {name.casefold(): node for name, node in chosen.items()}
    named = {node: node for node in chosen.values() if table.node(node) is None}
    unclear = {name: nodes for name, nodes in table.ambiguous.items() if name not in chosen}
    return AliasTable({**table.nodes, **named, **chosen}, unclear)


def _chosen(answers: Answers) -> dict[str, str]:
    return {key.removeprefix(ALIAS): node for key, node in answers.chosen.items() if key.startswith(ALIAS)}


def _groups(facts: Sequence[Fact], answers: Answers) -> list[Sequence[Name]]:
    """Names that belong together, those of answers included."""
    said = [node for nodes in answers.nodes.values() for node in nodes]
    said += [node for node in answers.hosts.values() if node != EVERY_NODE]
    return [*name_groups(facts), *([Name(NameKind.HOST, node)] for node in said)]


def _nodes(facts: Sequence[Fact], table: AliasTable, stored: Sequence[str], answers: Answers) -> tuple[str, ...]:
    """The nodes there are: those stored, and hosts that some fact shows to have GPUs.

    Where no fact shows any, as of a tree of switches alone, all hosts named are taken for nodes.
    """
    strong: set[str] = set()
    weak: set[str] = set()

    @cache
    def node_of(name: str) -> str | None:
        return table.node(name) if is_host(name) else None

    for fact in facts:
        found = {node for name in _host_names(fact) if (node := node_of(name))}
        (strong if shows_a_node(fact) else weak).update(found)
        if isinstance(fact, HostFact) and fact.gpu_count == 0:
            weak -= found
    told = {fact.origin.file for fact in facts if shows_a_node(fact) or lacks_its_host(fact)}
    named = [node for file, node in answers.hosts.items() if file in told and node != EVERY_NODE]
    strong |= {node for name in named if (node := table.node(name))}
    strong |= {node for names in answers.nodes.values() for name in names if (node := table.node(name))}
    new = strong if strong or stored else weak
    return (*stored, *sorted(new - set(stored), key=_natural))


def _natural(name: str) -> tuple[str, int, str]:
    """n2 before n10, as people list nodes."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :][:18] or 0), name


def _host_names(fact: Fact) -> tuple[str, ...]:
    match fact:
        case HostFact():
            return tuple(name.text for name in fact.names if name.kind not in _NO_NODE)
        case SwitchFact():
            return fact.hosts
        case _:
            return hosts_said(fact)


def _note_strangers(facts: Sequence[Fact], hosts: Hosts, notes: Notes) -> None:
    """Keep aside what files say of hosts that are not nodes: storage, login, hosts without GPUs."""
    for fact in facts:
        if isinstance(fact, SwitchFact):
            strangers = tuple(host for host in fact.hosts if hosts.named(host) is None)
            if strangers and hosts.nodes:
                shown = ", ".join(strangers[:5]) + (" ..." if len(strangers) > 5 else "")
                count = f"{len(strangers)} of {len(fact.hosts)} hosts under {fact.name} are not nodes here: {shown}"
                notes.aside(replace(fact, hosts=strangers), count)
        elif isinstance(fact, HostFact) and fact.names and not hosts.of_record(fact) and fact.gpu_count != 0:
            notes.aside(fact, "no other file shows that host to have GPUs")
