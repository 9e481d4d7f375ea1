"""Samples from runs and matrices; what makes none is kept aside with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from cluster_models.measurements import Collective, Direction, Sample, SampleStatus
from cluster_models.readers.facts import Fact, MatrixFact, Memory, Origin, Point, Quantity, RunEnd, RunFact
from cluster_models.readers.host_names import Hosts
from cluster_models.readers.proposal import Notes, ProposedSample, place_of
from cluster_models.readers.reading import Doubt, Trust

TINY_BYTES: Final = 8192.0
"""Up to this size the time of a transfer is its latency."""
_UNKNOWN_SIZE: Final = float(256 * 1024**2)
"""Of tools that do not print it: they all copy hundreds of megabytes, where size no longer counts."""
_FAILED_SIZE: Final = 1.0
_LONGEST: Final = 200
_MOST_CHOICES: Final = 20


def propose_samples(
    facts: Sequence[Fact], hosts: Hosts, rejected: Collection[str], notes: Notes
) -> tuple[ProposedSample, ...]:
    """Samples of all runs and matrices, repeats included.

    ``rejected`` are the places ("file:line") of facts that readers doubt and the sender did not accept.
    """
    found: list[ProposedSample] = []
    matrices: dict[tuple[str, ...], list[tuple[MatrixFact, list[ProposedSample]]]] = {}
    for fact in facts:
        if rejected and isinstance(fact, RunFact | MatrixFact) and place_of(fact.origin) in rejected:
            notes.aside(fact, "rejected by a doubt: accept it to use the figures all the same")
        elif isinstance(fact, RunFact):
            found.extend(_of_run(fact, hosts, notes))
        elif isinstance(fact, MatrixFact) and (made := list(_of_matrix(fact, hosts, notes))):
            ends = tuple(sorted({f"{one.sample.source}>{one.sample.destination}" for one in made}))
            matrices.setdefault((fact.tool, *ends), []).append((fact, made))
    for same in matrices.values():
        best = min(same, key=lambda entry: _preference(entry[0]))
        found.extend(best[1])
        for fact, _ in same:
            if _preference(fact) > _preference(best[0]):
                notes.aside(fact, "another matrix of the same run tells more of the links")
            elif fact is not best[0]:
                found.extend(made for other, mades in same if other is fact for made in mades)
    return tuple(found)


def _preference(fact: MatrixFact) -> tuple[bool, bool]:
    """One way before both, peers that reach each other before the way through the host."""
    return fact.direction is Direction.BOTH and fact.between == "gpus", fact.peer_access is False


def _of_run(fact: RunFact, hosts: Hosts, notes: Notes) -> Iterator[ProposedSample]:
    collective = fact.operation.collective
    if fact.memory is Memory.HOST:
        notes.aside(fact, "measured between host memories: says nothing of GPUs")
        return
    if collective is None:
        notes.aside(fact, f"{fact.operation} makes no sample: send sendrecv, alltoall or all_reduce")
        return
    ends = _ends(fact, hosts, notes)
    if ends is None:
        return
    ranks = _ranks_per_node(fact, ends, hosts, notes)
    if ranks is None:
        return
    moment = _aware(fact.measured_at) or hosts.answers.measured_at
    yield from _of_points(fact, collective, ends, ranks, moment)


def _ends(fact: RunFact, hosts: Hosts, notes: Notes) -> tuple[str, str] | None:
    """The two nodes of a run, the same twice where it stayed inside one; ``None`` where it makes no sample."""
    place = place_of(fact.origin)
    answer = hosts.answers.nodes.get(place)
    names = answer or fact.hosts
    nodes = tuple(dict.fromkeys(hosts.all_named(names, notes))) if names else hosts.of_file(fact.origin.file)
    if not nodes:
        if not names:
            many = f"{fact.nodes} nodes" if fact.nodes else "nodes"
            hinted = hosts.hinted(fact.origin.file)
            choices = (*hinted, *(node for node in hosts.nodes[:_MOST_CHOICES] if node not in hinted))
            notes.ask(f"nodes:{place}", f"on which {many} was {fact.tool} run at {place}?", choices)
        notes.aside(fact, "it is not known which nodes took part")
        return None
    if len(nodes) > 2 or (fact.nodes or 0) > 2:
        count = max(len(nodes), fact.nodes or 0)
        notes.aside(fact, f"ran over {count} nodes at once: a plan needs figures of pairs")
        return None
    if fact.nodes is not None and fact.nodes != len(nodes):
        notes.aside(fact, f"names {len(nodes)} nodes and says that {fact.nodes} took part")
        return None
    return nodes[0], nodes[-1]


def _ranks_per_node(fact: RunFact, ends: tuple[str, str], hosts: Hosts, notes: Notes) -> int | None:
    place, nodes = place_of(fact.origin), len(set(ends))
    counts: dict[str, int] = {}
    for member in fact.members:
        if member.host is not None and (node := hosts.named(member.host)) is not None:
            counts[node] = counts.get(node, 0) + 1
    ranks = hosts.answers.ranks.get(place) or fact.ranks
    if ranks is None and fact.ranks_per_node is None:
        ranks = sum(counts.values()) if len(counts) == nodes else None
    if len(set(counts.values())) > 1 and sum(counts.values()) == ranks:
        notes.aside(
            fact, f"unequal numbers of ranks: {', '.join(f'{n} on {h}' for h, n in sorted(counts.items()))}"
        )
        return None
    per_node = ranks / nodes if ranks is not None else fact.ranks_per_node
    if per_node is None:
        notes.ask(f"ranks:{place}", f"how many ranks had the run at {place}?")
        notes.aside(fact, "it is not known how many ranks took part")
        return None
    if per_node != int(per_node) or per_node < 1:
        notes.aside(fact, f"{ranks} ranks do not divide over {nodes} nodes")
        return None
    return int(per_node)


def _of_points(
    fact: RunFact, collective: Collective, ends: tuple[str, str], ranks: int, moment: datetime | None
) -> Iterator[ProposedSample]:
    one, other = sorted(ends) if fact.direction is Direction.BOTH else ends
    tool = _tool(fact.tool)

    def sample(size: float, rate: float | None, latency: float | None, line: int) -> ProposedSample:
        status = SampleStatus.FAILED if rate is None and latency is None else SampleStatus.OK
        made = Sample(
            source=one,
            destination=other,
            direction=fact.direction,
            tool=tool,
            collective=collective,
            message_bytes=size,
            ranks_per_node=ranks,
            pairs_active=fact.pairs_active,
            status=status,
            bytes_per_s=rate,
            latency_s=latency,
            measured_at=moment,
        )
        return ProposedSample(made, Origin(fact.origin.file, line, line))

    rows = [point for point in fact.points if point.message_bytes]
    if fact.end is RunEnd.FAILED and not rows:
        yield sample(_FAILED_SIZE, None, None, fact.origin.first_line)
        return
    tiny: list[Point] = []
    for point in rows:
        assert point.message_bytes is not None
        if point.message_bytes > TINY_BYTES and point.bytes_per_s:
            yield sample(point.message_bytes, point.bytes_per_s, None, point.line)
        elif point.message_bytes <= TINY_BYTES and point.time_s:
            tiny.append(point)
    if tiny:
        middle = sorted(tiny, key=lambda point: point.time_s or 0.0)[len(tiny) // 2]
        yield sample(middle.message_bytes or _FAILED_SIZE, None, middle.time_s, middle.line)


def _of_matrix(fact: MatrixFact, hosts: Hosts, notes: Notes) -> Iterator[ProposedSample]:
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
        tool=_tool(fact.tool),
        collective=collective,
        message_bytes=fact.message_bytes or _UNKNOWN_SIZE,
        ranks_per_node=ranks,
        pairs_active=1,
        status=SampleStatus.OK,
        bytes_per_s=rate,
        measured_at=hosts.answers.measured_at,
    )
    return ProposedSample(made, Origin(fact.origin.file, line, line))


def merged(samples: Sequence[ProposedSample]) -> tuple[ProposedSample, ...]:
    """One sample for each pair, size and run: the median of repeats; a failure only where nothing succeeded."""
    groups: dict[tuple[object, ...], list[ProposedSample]] = {}
    for one in samples:
        s = one.sample
        ends = (s.source, s.destination)
        if s.direction is Direction.BOTH and ends[1] < ends[0]:
            ends = ends[::-1]
        run = (s.direction, s.tool, s.collective, s.message_bytes, s.ranks_per_node, s.pairs_active, s.measured_at)
        groups.setdefault((*ends, *run), []).append(one)
    found = [same[0] if len(same) == 1 else _middle(same) for same in groups.values()]
    return tuple(sorted(found, key=lambda one: _order(one.sample)))


def _middle(same: Sequence[ProposedSample]) -> ProposedSample:
    good = [one for one in same if one.sample.status is SampleStatus.OK] or list(same)
    ranked = sorted(good, key=lambda one: (_figure(one.sample), one.origin.file, one.origin.first_line))
    return ranked[(len(ranked) - 1) // 2]


def _figure(sample: Sample) -> float:
    return sample.bytes_per_s or -(sample.latency_s or 0.0)


def _order(sample: Sample) -> tuple[str | float, ...]:
    run = (sample.tool, sample.collective, sample.direction, sample.ranks_per_node, sample.pairs_active)
    when = "" if sample.measured_at is None else sample.measured_at.isoformat()
    return (sample.source, sample.destination, *run, sample.message_bytes, when)


def _tool(said: str) -> str:
    """The tool's name as a document can hold it."""
    plain = said if said.isprintable() else "".join(filter(str.isprintable, said))
    return plain[:_LONGEST] or "unknown"


def _aware(moment: datetime | None) -> datetime | None:
    """The moment, if its text said a zone: without one it may be off by a day."""
    return moment if moment is not None and moment.tzinfo is not None else None


def rejected_places(
    facts: Sequence[Fact], doubts: Sequence[tuple[str, Doubt]], accepted: Collection[str]
) -> set[str]:
    """Places of the runs and matrices that a doubt rejects, but for those accepted ("file:line:code")."""
    lines: dict[str, list[int]] = {}
    for file, doubt in doubts:
        if doubt.trust is Trust.REJECT and f"{file}:{doubt.first_line}:{doubt.code}" not in accepted:
            lines.setdefault(file, []).append(doubt.first_line)
    if not lines:
        return set()
    figures = [fact for fact in facts if isinstance(fact, RunFact | MatrixFact)]
    begins = {(fact.origin.file, fact.origin.first_line) for fact in figures}
    return {
        place_of(fact.origin)
        for fact in figures
        if any(
            line == fact.origin.first_line
            or (
                fact.origin.first_line < line <= fact.origin.last_line
                and (fact.origin.file, line) not in begins  # of another, whose lines are mixed with these
            )
            for line in lines.get(fact.origin.file, ())
        )
    }
