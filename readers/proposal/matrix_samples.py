"""Samples from matrices between nodes or GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus
from readers.frame.facts import MatrixFact, Memory, Origin, Quantity
from readers.proposal.host_names import Hosts
from readers.proposal.values import Notes, ProposedSample, place_of

_UNKNOWN_SIZE: Final = float(256 * 1024**2)
"""Size for tools that do not print it: they all copy hundreds of megabytes, where size no longer counts."""
_LONGEST: Final = 200


def samples_of_matrix(fact: MatrixFact, hosts: Hosts, notes: Notes) -> Iterator[ProposedSample]:
    """The samples of a matrix; one that makes none is kept aside with the reason."""
    if fact.quantity is not Quantity.BANDWIDTH:
        notes.aside(fact, f"a table of {fact.quantity}, not of bandwidth: shown, makes no sample")
        return
    if fact.memory is Memory.HOST:
        notes.aside(fact, "measured between host and GPU: says nothing of links between GPUs")
        return
    collective = fact.operation.collective
    if collective is None:
        notes.aside(fact, f"{fact.operation} makes no sample")
        return
    if fact.between == "nodes":
        yield from _between_nodes(fact, collective, hosts, notes)
    else:
        yield from _between_gpus(fact, collective, hosts, notes)


def _between_nodes(
    fact: MatrixFact, collective: Collective, hosts: Hosts, notes: Notes
) -> Iterator[ProposedSample]:
    names = {name: hosts.named(name) for name in dict.fromkeys((*fact.rows, *fact.columns))}
    if None in names.values():
        hosts.all_named(list(names), notes)
    ranks = fact.ranks_per_node or hosts.answers.ranks.get(place_of(fact.origin))
    if ranks is None:
        notes.ask(f"ranks:{place_of(fact.origin)}", f"how many ranks per node had the runs of {fact.origin.file}?")
        notes.aside(fact, "it is not known how many ranks per node took part")
        return
    cells = {
        (source, destination): (value, line)
        for row, values, line in zip(fact.rows, fact.values, fact.lines, strict=False)
        for column, value in zip(fact.columns, values, strict=False)
        if value and (source := names[row]) and (destination := names[column])
    }
    both = fact.direction is Direction.BOTH and all(
        cells.get((b, a), (value, 0))[0] == value for (a, b), (value, _) in cells.items()
    )
    for (source, destination), (value, line) in cells.items():
        if not both or source <= destination or (destination, source) not in cells:
            direction = Direction.BOTH if both else Direction.FORWARD
            yield _sample(fact, collective, (source, destination), value, (direction, ranks, line, hosts))


def _between_gpus(fact: MatrixFact, collective: Collective, hosts: Hosts, notes: Notes) -> Iterator[ProposedSample]:
    """One figure for each two hosts: that of a slow pair of GPUs, as a plan may use any."""
    nodes = _hosts_of_gpus(fact, hosts, notes)
    share = 2.0 if fact.direction is Direction.BOTH else 1.0
    rates: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for row, values, line in zip(fact.rows, fact.values, fact.lines, strict=False):
        for column, value in zip(fact.columns, values, strict=False):
            ends = [(nodes[row], nodes[column])] if row in nodes and column in nodes else []
            if value and row != column:
                for pair in ends:
                    rates.setdefault(pair, []).append((value / share, line))
    own = len(set(nodes.values())) == 1
    templates = hosts.of_file(fact.origin.file) if own else ()
    for pair, values_of in sorted(rates.items()):
        rate, line = sorted(values_of)[(len(values_of) - 1) // 4]
        for ends_of in [(node, node) for node in templates] or [pair]:
            yield _sample(fact, collective, ends_of, rate, (Direction.FORWARD, 1, line, hosts))


def _hosts_of_gpus(fact: MatrixFact, hosts: Hosts, notes: Notes) -> Mapping[str, str]:
    names = tuple(dict.fromkeys((*fact.rows, *fact.columns)))
    if fact.hosts:
        found = {name: hosts.named(fact.hosts.get(name, "")) for name in names}
        if None in found.values():
            hosts.all_named(sorted(set(fact.hosts.values())), notes)
        return {name: node for name, node in found.items() if node is not None}
    own = hosts.of_fact(fact.host, fact.origin.file, notes)
    if not own:
        notes.aside(fact, "it is not known which node was measured")
    return dict.fromkeys(names, own[0]) if own else {}


def _sample(
    fact: MatrixFact,
    collective: Collective,
    ends: tuple[str, str],
    rate: float,
    context: tuple[Direction, int, int, Hosts],
) -> ProposedSample:
    direction, ranks, line, hosts = context
    made = Sample(
        source=ends[0],
        destination=ends[1],
        direction=direction,
        tool=tool_name(fact.tool),
        collective=collective,
        message_bytes=fact.message_bytes or _UNKNOWN_SIZE,
        ranks_per_node=ranks,
        pairs_active=1,
        status=SampleStatus.OK,
        bytes_per_s=rate,
        measured_at=hosts.answers.measured_at,
    )
    return ProposedSample(made, Origin(fact.origin.file, line, line))


def tool_name(said: str) -> str:
    """The tool's name as a document can hold it."""
    plain = said if said.isprintable() else "".join(filter(str.isprintable, said))
    return plain[:_LONGEST] or "unknown"
