"""Nodes from what files say of hosts: one value a field, and a conflict where files differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cluster_models.catalogue import gpu_kind
from cluster_models.errors import InvalidCluster
from cluster_models.readers.facts import (
    Fact,
    HostFact,
    Name,
    NameKind,
    Nics,
    Origin,
    PortFact,
    RunFact,
    SwitchFact,
    WiringFact,
)
from cluster_models.readers.host_names import Hosts
from cluster_models.readers.numbers import finite, whole
from cluster_models.readers.proposal import EVERY_NODE, Answers, Conflict, Notes, ProposedNode, Said
from cluster_models.readers.reading import Doubt, Trust
from cluster_models.topology import Cluster, NicGroup, Node
from cluster_models.units import GBIT

_ORCHESTRATOR, _TOOL, _KNOWN, _TEMPLATE, _SEEN, _LISTED = 40, 30, 20, 10, 5, 4
"""Whom we believe first: what schedules the node, what was run on it, what was stored, a virtual machine's
template, and last what a test happened to print.  Tables list GPUs per node without naming any: they only raise
what a test printed."""
_NICS: Final = re.compile(r"(\d{1,4}) ?[xX] ?(\d{1,6}(?:\.\d{1,3})?)(?: ?Gb(?:it)?/s| ?Gbps)?(?: (\w{1,40}))?")
_NO_NETWORK: Final = frozenset({"ethernet"})


@dataclass(frozen=True, slots=True)
class Claim:
    """One value for one field of one node."""

    node: str
    field: str
    value: Any
    origin: Origin
    weight: int


def propose_nodes(
    facts: Sequence[Fact], places: Sequence[Claim], hosts: Hosts, *, known: Cluster | None, notes: Notes
) -> tuple[ProposedNode, ...]:
    """A node for each of ``hosts.nodes``, with every field that files, ``known`` or answers give."""
    claims: dict[str, dict[str, list[Claim]]] = {node: {} for node in hosts.nodes}
    for claim in (*_claims(facts, hosts, notes), *places):
        claims[claim.node].setdefault(claim.field, []).append(claim)
    stored = {} if known is None else {node.name: node for node in known.nodes}
    aliases = _aliases(facts, hosts)
    proposed = []
    for name in hosts.nodes:
        fields = claims[name]
        if (node := stored.get(name)) is not None and known is not None:
            for field, value in _stored_fields(node):
                origin = Origin(f"cluster {known.name}", 0, 0)
                fields.setdefault(field, []).append(Claim(name, field, value, origin, _KNOWN))
        _note_seen(fields, hosts.answers, notes)
        taken = {field: _taken(said, hosts.answers, notes) for field, said in sorted(fields.items())}
        taken |= _filled(name, taken, hosts.answers)
        proposed.append(ProposedNode(name, aliases.get(name, ()), taken, node is None))
    _ask_for_missing(proposed, notes)
    return tuple(proposed)


def _claims(facts: Sequence[Fact], hosts: Hosts, notes: Notes) -> Iterator[Claim]:
    ports: dict[tuple[str, str], list[PortFact]] = {}
    fabrics = {fact.origin.file for fact in facts if isinstance(fact, SwitchFact)}
    for fact in facts:
        match fact:
            case HostFact():
                yield from _of_host(fact, hosts, notes)
            case WiringFact():
                yield from _of_wiring(fact, hosts, notes)
            case RunFact():
                yield from _of_run(fact, hosts, notes)
            case PortFact() if fact.host is not None or fact.origin.file not in fabrics:
                for node in hosts.of_fact(fact.host, fact.origin.file, notes):
                    ports.setdefault((node, fact.origin.file), []).append(fact)
            case _:
                pass
    for (node, _), of_node in ports.items():
        nics = _nics_of_ports(of_node)
        if nics is not None:
            yield Claim(node, "nics", nics, of_node[0].origin, _TOOL)


def _of_host(fact: HostFact, hosts: Hosts, notes: Notes) -> Iterator[Claim]:
    scheduled = any(name.kind in {NameKind.SLURM, NameKind.KUBERNETES} for name in fact.names)
    weight = _ORCHESTRATOR if scheduled else _TEMPLATE
    nodes = hosts.of_record(fact) if fact.names else hosts.of_fact(None, fact.origin.file, notes)
    if not nodes and fact.names and fact.gpu_count == 0:
        notes.aside(fact, "the host has no GPU: not taken as a node")
    for node in nodes:
        said: dict[str, Any] = {f"labels.{label}": value for label, value in fact.labels.items() if value}
        if fact.labels.get("level1") == fact.labels.get("leaf"):
            said.pop("labels.level1", None)
        said |= {"nvlink_domain": fact.scale_up_domain, "state": fact.state, "nics": _nics(fact.nics)}
        said["gpu_kind"] = None if fact.gpu_product is None else _kind(fact.gpu_product, hosts.answers, notes)
        said["gpu_count"] = None if fact.gpu_in_slices else fact.gpu_count or None
        for field, value in said.items():
            if value is not None:
                yield Claim(node, field, value, fact.origin, weight)


def _of_wiring(fact: WiringFact, hosts: Hosts, notes: Notes) -> Iterator[Claim]:
    weight = _TEMPLATE if fact.hides_nvlink else _TOOL
    products = {kind for product in fact.gpu_products if (kind := _kind(product, hosts.answers, notes)) is not None}
    for node in hosts.of_fact(fact.host, fact.origin.file, notes):
        if fact.expected_gpus:
            yield Claim(node, "gpu_count", fact.expected_gpus, fact.origin, weight)
        if len(products) == 1:
            yield Claim(node, "gpu_kind", next(iter(products)), fact.origin, weight)


def _of_run(fact: RunFact, hosts: Hosts, notes: Notes) -> Iterator[Claim]:
    """GPUs that took part: a lower bound of those there are, believed where nothing else is said."""
    by_node: dict[str, list[str]] = {}
    for member in fact.members:
        if member.host is not None and (node := hosts.named(member.host)) is not None:
            by_node.setdefault(node, []).append(member.product)
    if fact.ranks_per_node and not fact.members:
        for host in fact.hosts:
            if (node := hosts.named(host)) is not None:
                yield Claim(node, "gpu_count", fact.ranks_per_node, fact.origin, _LISTED)
    for node, products in by_node.items():
        yield Claim(node, "gpu_count", len(products), fact.origin, _SEEN)
        kinds = {_kind(product, hosts.answers, notes) for product in products if product}
        if len(kinds) == 1 and (kind := next(iter(kinds))) is not None:
            yield Claim(node, "gpu_kind", kind, fact.origin, _SEEN)


def _kind(product: str, answers: Answers, notes: Notes) -> str | None:
    """The catalogue's name of a product; asks where the catalogue has none."""
    key = f"gpu_kind:{product}"
    if (answer := answers.chosen.get(key)) is not None:
        return answer
    try:
        return gpu_kind(product).name
    except InvalidCluster as error:
        notes.ask(key, f"which GPU kind is {product!r}? {error.remedy}")
        return None


def _nics(groups: Sequence[Nics]) -> NicGroup | None:
    """The fastest cards of a host, those that training uses."""
    rated = [(group.bytes_per_s, group.count, group) for group in groups if group.bytes_per_s and group.count > 0]
    if not rated:
        return None
    rate, _, group = max(rated, key=lambda entry: entry[:2])
    count = sum(other.count for other in groups if other.bytes_per_s == rate)
    return NicGroup(count, rate, group.fabric or "unknown")


def _nics_of_ports(ports: Sequence[PortFact]) -> NicGroup | None:
    """The ports that are up at the highest rate; Ethernet only where there is nothing else."""
    up = [port for port in ports if port.up and port.bytes_per_s]
    fabric = [port for port in up if port.fabric.casefold() not in _NO_NETWORK] or up
    if not fabric:
        return None
    rate = max(port.bytes_per_s or 0.0 for port in fabric)
    best = [port for port in fabric if port.bytes_per_s == rate]
    return NicGroup(len(best), rate, best[0].fabric or "unknown")


def _stored_fields(node: Node) -> Iterator[tuple[str, Any]]:
    for field in ("gpu_kind", "gpu_count", "nics", "nvlink_domain", "state"):
        yield field, getattr(node, field)
    for label, value in node.labels.items():
        yield f"labels.{label}", value


def _taken(claims: Sequence[Claim], answers: Answers, notes: Notes) -> Said:
    """The value of one field: the answer, else the weightiest; a conflict is noted where others differ."""
    node, field = claims[0].node, claims[0].field
    seen = [claim for claim in claims if claim.weight <= _SEEN]
    stated = [claim for claim in claims if claim.weight > _SEEN]
    if field == "gpu_count" and stated:
        claims = stated
    elif field == "gpu_count":
        claims = [max(seen, key=lambda claim: claim.value)]
    by_value: dict[str, list[Claim]] = {}
    for claim in claims:
        by_value.setdefault(_shown(claim.value), []).append(claim)
    ranked = sorted(
        by_value.values(), key=lambda same: (-max(c.weight for c in same), -len(same), _shown(same[0].value))
    )
    said = tuple(Said(same[0].value, tuple(sorted({c.origin for c in same}, key=_place))) for same in ranked)
    own = answers.chosen.get(f"{node}.{field}")
    choice = answers.chosen.get(f"{EVERY_NODE}.{field}") if own is None else own
    if choice is not None:
        matching = [one for one in said if _shown(one.value) == choice]
        if matching:
            return matching[0]
        # said of all nodes, where it was asked of the new ones: what is stored of the others stays
        value = _parsed(field, choice)
        if own is not None or all(claim.weight != _KNOWN for claim in claims):
            return Said(value, ())
        if all(one.value != value for one in said):
            notes.passed_over.setdefault(field, []).append(node)
    if len(said) > 1:
        notes.conflicts.append(Conflict(f"{node}.{field}", said, said[0]))
    return said[0]


def _note_seen(fields: dict[str, list[Claim]], answers: Answers, notes: Notes) -> None:
    """Say that a node's GPUs are only those of a test; a node kind that the sender names knows better."""
    counts = fields.get("gpu_count", [])
    if not counts or any(claim.weight > _SEEN for claim in counts):
        return
    if answers.node_kind or all(claim.weight == _LISTED for claim in counts):
        del fields["gpu_count"]
        return
    most = max(counts, key=lambda claim: claim.value)
    gpus = "1 GPU" if most.value == 1 else f"{most.value} GPUs"
    sentence = f"{most.node} is taken to have {gpus}, as many as took part in a test"
    doubt = Doubt("gpus-seen", Trust.NOTE, most.origin.first_line, sentence, "name its node kind, or its gpu_count")
    notes.doubts.append((most.origin.file, doubt))


def _place(origin: Origin) -> tuple[str, int, int, str]:
    return origin.file, origin.first_line, origin.last_line, origin.path


def _shown(value: Any) -> str:
    if isinstance(value, NicGroup):
        return f"{value.count} x {value.bytes_per_s / GBIT:g} Gb/s {value.fabric}"
    return str(value)


def _parsed(field: str, text: str) -> Any:
    """An answer as a value of its field; the text itself where it is none, for the document's check to refuse."""
    if field == "gpu_count":
        number = whole(text, 6)
        return text if number is None else number
    if field == "nics" and (found := _NICS.fullmatch(text.strip())) is not None:
        count, rate = int(found[1]), finite(found[2])
        if count and rate:
            return NicGroup(count, rate * GBIT, found[3] or "unknown")
    return text


def _filled(name: str, taken: Mapping[str, Said], answers: Answers) -> dict[str, Said]:
    """Fields that no file gives and an answer does."""
    found: dict[str, Said] = {}
    for where, text in answers.chosen.items():
        node, _, field = where.partition(".") if where.startswith(EVERY_NODE) else _split(where, name)
        if node in {name, EVERY_NODE} and field and field not in taken:
            found[field] = Said(_parsed(field, text), ())
    if answers.gpu_kind and "gpu_kind" not in taken:
        found.setdefault("gpu_kind", Said(answers.gpu_kind, ()))
    if answers.node_kind:
        found["node_kind"] = Said(answers.node_kind, ())
    return found


def _split(where: str, name: str) -> tuple[str, str, str]:
    """The node ``name`` and the field of an answer such as "n1.example.gpu_count": names hold points too."""
    prefix = f"{name}."
    return (name, ".", where[len(prefix) :]) if where.startswith(prefix) else ("", "", "")


def _aliases(facts: Sequence[Fact], hosts: Hosts) -> dict[str, tuple[Name, ...]]:
    names: dict[str, set[Name]] = {}
    for fact in facts:
        if isinstance(fact, HostFact):
            for node in hosts.of_record(fact) if fact.names else ():
                names.setdefault(node, set()).update(name for name in fact.names if name.text != node)
    return {node: tuple(sorted(found, key=lambda name: (name.kind, name.text))) for node, found in names.items()}


def _ask_for_missing(nodes: Sequence[ProposedNode], notes: Notes) -> None:
    """One question a field for all nodes that lack it; a node kind of the catalogue answers for all three."""
    for field, what in (("gpu_kind", "GPU kind"), ("gpu_count", "number of GPUs"), ("nics", "network cards")):
        lacking = [node.name for node in nodes if field not in node.fields and "node_kind" not in node.fields]
        shown = ", ".join(lacking[:5]) + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
        for _ in lacking:
            remedy = "name a node kind of the catalogue, or " + (
                'give "8 x 400 infiniband"' if field == "nics" else "send a file that says it"
            )
            notes.ask(f"{EVERY_NODE}.{field}", f"no file says the {what} of {shown}: {remedy}")
