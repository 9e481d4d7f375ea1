"""Samples from runs and matrices; what makes none is kept aside with the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus
from readers.frame.facts import Fact, MatrixFact, Memory, Origin, Point, RunEnd, RunFact
from readers.frame.findings import Finding, Severity
from readers.proposal.host_names import Hosts
from readers.proposal.matrix_samples import samples_of_matrix, tool_name
from readers.proposal.values import Notes, ProposedNode, ProposedSample, place_of

TINY_BYTES: Final = 8192.0
"""Up to this size the time of a transfer is its latency."""
_FAILED_SIZE: Final = 1.0
"""Size for failed tests that name none."""
_MOST_CHOICES: Final = 20


def propose_samples(
    facts: Sequence[Fact], hosts: Hosts, rejected: Collection[str], nodes: Sequence[ProposedNode], notes: Notes
) -> tuple[ProposedSample, ...]:
    """Samples of all runs and matrices, repeats included; none of more ranks than ``nodes`` have GPUs.

    ``rejected`` are the places ("file:line") of facts that readers doubt and the sender did not accept.
    """
    gpus = {node.name: count for node in nodes if (count := node.gpu_count) is not None}
    found: list[ProposedSample] = []
    matrices: dict[tuple[str, ...], list[tuple[MatrixFact, list[ProposedSample]]]] = {}
    for fact in facts:
        if rejected and isinstance(fact, RunFact | MatrixFact) and place_of(fact.origin) in rejected:
            notes.aside(fact, "rejected by a doubt: accept it to use the figures all the same")
        elif isinstance(fact, RunFact):
            found.extend(_possible(fact, list(_of_run(fact, hosts, notes)), gpus, notes))
        elif isinstance(fact, MatrixFact) and (
            made := _possible(fact, list(samples_of_matrix(fact, hosts, notes)), gpus, notes)
        ):
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


def _possible(
    fact: Fact, made: list[ProposedSample], gpus: Mapping[str, int], notes: Notes
) -> list[ProposedSample]:
    """Samples but for those of more ranks than a node has GPUs: other nodes took part, or a count is wrong."""
    kept: list[ProposedSample] = []
    reason = ""
    for one in made:
        sample = one.sample
        ranks = sample.ranks_per_node
        if ranks <= gpus.get(sample.source, ranks) and ranks <= gpus.get(sample.destination, ranks):
            kept.append(one)
        elif not reason:
            small = sample.source if ranks > gpus.get(sample.source, ranks) else sample.destination
            have = "1 GPU" if gpus[small] == 1 else f"{gpus[small]} GPUs"
            remedy = f"say which nodes took part, or correct {small}.gpu_count"
            reason = f"{ranks} ranks on {small}, which has {have}: {remedy}"
    if reason:
        notes.aside(fact, reason)
    return kept


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
    names = answer or (() if fact.hosts_missing else fact.hosts)
    nodes = tuple(dict.fromkeys(hosts.all_named(names, notes))) if names else hosts.of_file(fact.origin.file)
    if (count := max(len(nodes), fact.nodes or 0)) > 2:
        notes.aside(fact, f"ran over {count} nodes at once: a plan needs figures of pairs")
        return None
    if not nodes:
        if not names:
            _ask_for_nodes(fact, hosts, notes)
        notes.aside(fact, "it is not known which nodes took part")
        return None
    if fact.nodes is not None and fact.nodes != len(nodes):
        notes.aside(fact, f"names {len(nodes)} nodes and says that {fact.nodes} took part")
        return None
    return nodes[0], nodes[-1]


def _ask_for_nodes(fact: RunFact, hosts: Hosts, notes: Notes) -> None:
    place, file = place_of(fact.origin), fact.origin.file
    many = "nodes" if fact.nodes is None else "node" if fact.nodes == 1 else f"{fact.nodes} nodes"
    first = hosts.hinted(file)
    choices: tuple[str, ...] = (*first, *(node for node in hosts.nodes[:_MOST_CHOICES] if node not in first))
    sentence = f"on which {many} was {fact.tool} run at {place}?"
    if fact.hosts_missing:
        choices = ()
        sentence += f" Its list of ranks has gaps and names {' and '.join(fact.hosts[:3])}"
    notes.ask(f"nodes:{place}", sentence, choices)


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
    tool = tool_name(fact.tool)

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
    if fact.end is RunEnd.FAILED:
        for size, line in _failures(fact, rows):
            yield sample(size, None, None, line)
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


def merged(samples: Sequence[ProposedSample]) -> tuple[ProposedSample, ...]:
    """One sample for each pair, size and run: the median of repeats; a failure only where nothing succeeded."""
    groups: dict[tuple[Any, ...], list[ProposedSample]] = {}
    for one in samples:
        s = one.sample
        ends = (s.source, s.destination)
        if s.direction is Direction.BOTH and ends[1] < ends[0]:
            ends = ends[::-1]
        when = 0.0 if s.measured_at is None else s.measured_at.timestamp()
        run = (s.tool, s.collective, s.direction, s.ranks_per_node, s.pairs_active, s.message_bytes, when)
        key = (*ends, *run)
        if (same := groups.get(key)) is None:
            groups[key] = [one]
        else:
            same.append(one)
    return tuple(same[0] if len(same) == 1 else _middle(same) for _, same in sorted(groups.items()))


def _middle(same: Sequence[ProposedSample]) -> ProposedSample:
    good = [one for one in same if one.sample.status is SampleStatus.OK] or list(same)
    ranked = sorted(good, key=lambda one: (_figure(one.sample), one.origin.file, one.origin.first_line))
    return ranked[(len(ranked) - 1) // 2]


def _figure(sample: Sample) -> float:
    return sample.bytes_per_s or -(sample.latency_s or 0.0)


def _aware(moment: datetime | None) -> datetime | None:
    """The moment, if its text said a zone: without one it may be off by a day."""
    return moment if moment is not None and moment.tzinfo is not None else None


def _failures(fact: RunFact, rows: Sequence[Point]) -> Iterator[tuple[float, int]]:
    """Sizes and lines of what failed: rows without figures, else the size that would have come next."""
    lost = [point for point in rows if point.bytes_per_s is None and point.time_s is None]
    if lost:
        yield from ((point.message_bytes or _FAILED_SIZE, point.line) for point in lost)
        return
    sizes = sorted({point.message_bytes or 0.0 for point in rows})
    step = sizes[-1] / sizes[-2] if len(sizes) > 1 else 2.0
    last = max((point.line for point in rows), default=fact.origin.first_line)
    yield (sizes[-1] * step if sizes else _FAILED_SIZE), last


def rejected_places(facts: Sequence[Fact], doubts: Sequence[Finding], accepted: Collection[str]) -> set[str]:
    """Places of the runs and matrices that a doubt rejects, but for those accepted ("file:line:code")."""
    lines: dict[str, list[int]] = {}
    for doubt in doubts:
        if doubt.severity is Severity.REJECT and doubt.key not in accepted:
            lines.setdefault(doubt.place.file, []).append(doubt.first_line)
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
