"""Nodes from what files say of hosts: one value a field, and a conflict where files differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.topology import Cluster, NicGroup, Node
from cluster_models.errors import InvalidCluster
from cluster_models.wording import named
from readers.frame.facts import (
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
from readers.frame.findings import note
from readers.proposal.claims import (
    KNOWN,
    LISTED,
    ORCHESTRATOR,
    SEEN,
    TEMPLATE,
    TOOL,
    Claim,
    answered,
    believed,
)
from readers.proposal.host_names import Hosts, instance_kind
from readers.proposal.nvlink_blocks import keep_nvlink_blocks
from readers.proposal.values import EVERY_NODE, Answers, Notes, ProposedNode

_NO_NETWORK: Final = frozenset({"ethernet"})


def propose_nodes(
    facts: Sequence[Fact], places: Sequence[Claim], hosts: Hosts, *, known: Cluster | None, notes: Notes
) -> tuple[ProposedNode, ...]:
    """A node for each of ``hosts.nodes``, with every field that files, ``known`` or answers give."""
    claims: dict[str, dict[str, list[Claim]]] = {node: {} for node in hosts.nodes}
    for claim in (*_claims(facts, hosts, notes), *places, *_stored(known)):
        claims[claim.node].setdefault(claim.field, []).append(claim)
    keep_nvlink_blocks(claims, hosts.answers, notes)
    stored = set() if known is None else {node.name for node in known.nodes}
    aliases = _aliases(facts, hosts)
    proposed = []
    for name in hosts.nodes:
        fields = claims[name]
        _note_seen(fields, hosts.answers, notes)
        taken = {field: believed(said, hosts.answers, notes) for field, said in sorted(fields.items())}
        taken |= answered(name, taken, hosts.answers)
        proposed.append(ProposedNode(name, aliases.get(name, ()), taken, name not in stored))
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
            yield Claim(node, "nics", nics, of_node[0].origin, TOOL)


def _of_host(fact: HostFact, hosts: Hosts, notes: Notes) -> Iterator[Claim]:
    scheduled = any(name.kind in {NameKind.SLURM, NameKind.KUBERNETES} for name in fact.names)
    weight = ORCHESTRATOR if scheduled else TEMPLATE
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
                own = max(weight, TOOL) if field == "nvlink_domain" else weight  # no template holds ClusterUUIDs
                yield Claim(node, field, value, fact.origin, own)
        sold = None if fact.gpu_in_slices else instance_kind(fact.instance_type)
        if sold is not None:
            yield Claim(node, "gpu_count", sold.gpu_count, fact.origin, TEMPLATE)
            yield Claim(node, "nics", sold.nics, fact.origin, TEMPLATE)
            if len(sold.gpu_kinds) == 1:
                yield Claim(node, "gpu_kind", sold.gpu_kinds[0], fact.origin, TEMPLATE)


def _of_wiring(fact: WiringFact, hosts: Hosts, notes: Notes) -> Iterator[Claim]:
    weight = TEMPLATE if fact.hides_nvlink else TOOL
    products = {kind for product in fact.gpu_products if (kind := _kind(product, hosts.answers, notes)) is not None}
    for node in hosts.of_fact(fact.host, fact.origin.file, notes):
        if fact.expected_gpus:
            yield Claim(node, "gpu_count", fact.expected_gpus, fact.origin, weight)
        if len(products) == 1:
            yield Claim(node, "gpu_kind", next(iter(products)), fact.origin, weight)


def _of_run(fact: RunFact, hosts: Hosts, notes: Notes) -> Iterator[Claim]:
    """GPUs that took part: a lower bound of those there are, believed where no file says otherwise."""
    by_node: dict[str, list[str]] = {}
    for member in fact.members:
        if member.host is not None and (node := hosts.named(member.host)) is not None:
            by_node.setdefault(node, []).append(member.product)
    whole = fact.ranks is None or len(fact.members) >= fact.ranks
    if fact.ranks_per_node and not whole:
        for host in fact.hosts:
            if (node := hosts.named(host)) is not None:
                yield Claim(node, "gpu_count", fact.ranks_per_node, fact.origin, SEEN if by_node else LISTED)
    for node, products in by_node.items():
        if whole:
            yield Claim(node, "gpu_count", len(products), fact.origin, SEEN)
        kinds = {_kind(product, hosts.answers, notes) for product in products if product}
        if len(kinds) == 1 and (kind := next(iter(kinds))) is not None:
            yield Claim(node, "gpu_kind", kind, fact.origin, SEEN)


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


def _stored(known: Cluster | None) -> Iterator[Claim]:
    if known is None:
        return
    origin = Origin(f"cluster {known.name}", 0, 0)
    for node in known.nodes:
        for field, value in _stored_fields(node):
            yield Claim(node.name, field, value, origin, KNOWN)


def _stored_fields(node: Node) -> Iterator[tuple[str, Any]]:
    for field in ("gpu_kind", "gpu_count", "nics", "state"):
        yield field, getattr(node, field)
    if node.nvlink_domain != node.name:  # its default
        yield "nvlink_domain", node.nvlink_domain
    for label, value in node.labels.items():
        yield f"labels.{label}", value


def _note_seen(fields: dict[str, list[Claim]], answers: Answers, notes: Notes) -> None:
    """Say that a node's GPUs are only those of a test; a node kind that the sender names knows better."""
    counts = fields.get("gpu_count", [])
    if not counts or any(claim.weight > SEEN for claim in counts):
        return
    if answers.node_kind or all(claim.weight == LISTED for claim in counts):
        del fields["gpu_count"]
        return
    most = max(counts, key=lambda claim: claim.value)
    gpus = "1 GPU" if most.value == 1 else f"{most.value} GPUs"
    sentence = f"{most.node} is taken to have {gpus}, as many as took part in a test"
    notes.doubts.append(note("gpus-seen", most.origin, sentence, "name its node kind, or its gpu_count"))


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
        for _ in lacking:
            said = 'give it as "8 x 400 infiniband"' if field == "nics" else "give it"
            notes.ask(
                f"{EVERY_NODE}.{field}",
                f"no file says the {what} of {named(lacking, 5)}: {said}, or send a file that says it",
            )
