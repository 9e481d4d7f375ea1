"""One test of nccl-tests as a fact, from what its lines said."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from readers.formats.nccl.rank_hosts import ranks_per_host
from readers.formats.nccl.rows import Columns, Row
from readers.formats.nccl.verdicts import (
    PROGRAMS,
    disagrees,
    ending,
    guessed_operation,
    guessed_ranks,
    has_warm_up,
    lacks_rows,
    named_operation,
    row_doubts,
)
from readers.frame.facts import Member, Operation, Origin, Point, RunFact
from readers.frame.findings import Finding, doubt, note, refusal, reject
from readers.frame.numbers import moment_of, whole
from readers.frame.sources import Source

_LEAST_BANDWIDTH: Final = 0.05
"""GB/s below which two digits after the point say less than a tenth of the figure."""


@dataclass(slots=True)
class Draft:
    """A test while its lines are read."""

    program: str = ""
    tool: str = ""
    first: int = 0
    last: int = 0
    columns: Columns | None = None
    begun: bool = False
    """Settings, devices, a header or rows were seen."""
    members: dict[int, Member] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    told: dict[int, Member] = field(default_factory=dict)
    told_ranks: int | None = None
    rows: list[Row] = field(default_factory=list)
    most: int | None = None
    average: float | None = None
    failed_values: int = 0
    failure: str = ""
    elided: bool = False
    concluded: bool = False
    ours: dict[str, str] = field(default_factory=dict)


def run_of(source: Source, draft: Draft) -> tuple[RunFact, list[Finding]] | Finding:
    """The fact and the doubts of a test, or why it is none."""
    doubts: list[Finding] = []
    rows = _sound_rows(draft, doubts)
    operation = _operation(source, draft, rows, doubts)
    if operation is None:
        return refusal(
            draft.first,
            draft.last,
            "the lines do not say which test was run",
            "send the lines above the table too, or name the file after the program, as in alltoall_perf.log",
        )
    members, ranks, hosts = _ranks(source, draft, operation, rows, doubts)
    doubts.extend(_doubts(draft, rows, operation, ranks))
    partial = not draft.failure and lacks_rows(draft.rows, draft.average)
    end, reason = ending(
        rows=len(draft.rows),
        failure=draft.failure,
        elided=draft.elided,
        partial=partial,
        concluded=draft.concluded,
        largest=max((2 * row.size_bytes for row in rows), default=0),
        most=draft.most,
    )
    if partial or draft.elided:
        doubts.append(note("partial", draft.first, f"not all rows are there: {reason}"))
    place = _place(draft, members, ranks, hosts)
    fact = RunFact(
        origin=Origin(source.name, draft.first, draft.last),
        tool=draft.tool or _tool(members),
        operation=operation,
        members=members,
        ranks=ranks,
        hosts=hosts,
        points=tuple(_point(row) for row in rows),
        end=end,
        end_reason=reason,
        nodes=place.nodes,
        ranks_per_node=place.ranks_per_node,
        hosts_missing=bool(hosts) and (place.nodes is None or place.nodes > len(hosts)),
        pairs_active=whole(draft.ours.get("pairs_active", ""), 6) or 1,
        stated_average_bytes_per_s=None if draft.average is None else round(draft.average * 1e9, 3),
        measured_at=_moment(draft.ours.get("started", "")),
    )
    return fact, doubts


@dataclass(frozen=True, slots=True)
class _Place:
    """Nodes of a test and ranks on each; ``None`` where unknown, or uneven."""

    nodes: int | None
    ranks_per_node: int | None


def _place(draft: Draft, members: tuple[Member, ...], ranks: int | None, hosts: tuple[str, ...]) -> _Place:
    """By the list where it is whole, by division where nodes are named otherwise, else as the ranks listed show."""
    local = bool(members) and all(member.host is None for member in members)
    count = 1 if local else len(hosts)
    if ranks is None or not count:
        return _Place(count or None, None)
    by_host = Counter(member.host for member in members)
    if len(members) == ranks:
        return _Place(count, ranks // count if len(set(by_host.values())) == 1 else None)
    if local or not members or draft.ours.get("nodes"):
        return _Place(count, ranks // count if ranks % count == 0 else None)
    per_node = ranks_per_host(members, ranks)
    return _Place(None if per_node is None else ranks // per_node, per_node)


def _point(row: Row) -> Point:
    known = row.bus >= _LEAST_BANDWIDTH
    return Point(row.line, float(row.size_bytes), row.bus * 1e9 if known else None, row.time_s)


def _sound_rows(draft: Draft, doubts: list[Finding]) -> list[Row]:
    """Rows with bytes, without the first where it holds the set-up, and with figures that agree."""
    rows = [row for row in draft.rows if row.size_bytes > 0]
    if has_warm_up(rows):
        sentence = f"the first row took {rows[0].time_s:g} s, more than larger ones: it holds the set-up, left out"
        doubts.append(note("warm-up", rows[0].line, sentence))
        rows = rows[1:]
    damaged = [row for row in rows if not row.is_consistent]
    if damaged and 2 * len(damaged) <= len(rows):
        for row in damaged:
            sentence = (
                f"size over time is not the {row.algorithm:g} GB/s beside them: a figure is damaged, row left out"
            )
            doubts.append(doubt("figures-disagree", row.line, sentence))
        rows = [row for row in rows if row.is_consistent]
    elif damaged:
        sentence = "size over time is not the bandwidth in most rows: times may be those of the processor"
        doubts.append(reject("figures-disagree", damaged[0].line, sentence, "measure without -S and -C"))
    return rows


def _operation(source: Source, draft: Draft, rows: list[Row], doubts: list[Finding]) -> Operation | None:
    if draft.program:
        return PROGRAMS[draft.program]
    listed = max(draft.members, default=-1) + 1 or draft.told_ranks
    by_columns = guessed_operation(rows, listed)
    by_name = named_operation(source.name)
    found = by_columns or by_name
    if found is not None:
        how = "by its columns" if by_columns else f"by the name of the file, {source.name}"
        doubts.append(note("operation-guessed", draft.first, f"the test is {found.value} {how}"))
    return found


def _ranks(
    source: Source, draft: Draft, operation: Operation, rows: list[Row], doubts: list[Finding]
) -> tuple[tuple[Member, ...], int | None, tuple[str, ...]]:
    listed = draft.members or draft.told
    members = tuple(listed[rank] for rank in sorted(listed))
    ranks = max(listed) + 1 if listed else None
    if not draft.members and draft.told_ranks is not None:
        ranks = draft.told_ranks
    elif ranks is not None and len(listed) < ranks:  # the last ones may be missing, too
        ranks = max(ranks, guessed_ranks(operation, rows) or 0)
    if ranks is None and "gpus" not in draft.ours:
        ranks = guessed_ranks(operation, rows)
        if ranks is not None:
            sentence = (
                f"there is no list of ranks: the figures are those of {ranks} ranks, of which nodes is unknown"
            )
            doubts.append(doubt("ranks-guessed", draft.first, sentence, "say which nodes took part"))
    elif ranks is not None and len(members) < ranks:
        sentence = f"{len(members)} of {ranks} ranks are listed"
        doubts.append(note("ranks-partly-listed", draft.first, sentence))
    names = tuple(dict.fromkeys(member.host for member in members if member.host is not None))
    ours = tuple(name for name in draft.ours.get("nodes", "").split(",") if name)
    per_node = whole(draft.ours.get("gpus", ""), 6)
    if ours and per_node is not None and not listed:
        ranks = per_node * len(ours)
    if ours and len(names) in {0, len(ours)}:
        # pods have names of their own: ours are in the order of the ranks
        renamed = dict(zip(names, ours, strict=False)) if set(names) != set(ours) else {}
        members = tuple(
            Member(m.rank, renamed.get(m.host or "", m.host), m.gpu, m.bus_id, m.product) for m in members
        )
        return members, ranks, tuple(renamed.get(name, name) for name in names) or ours
    if not names and members and source.host:
        names = (source.host,)
    return members, ranks, names


def _doubts(draft: Draft, rows: list[Row], operation: Operation, ranks: int | None) -> list[Finding]:
    doubts = list(row_doubts(rows))
    first = draft.first
    if draft.failed_values and not any(doubt.code == "wrong-values" for doubt in doubts):
        sentence = f"{draft.failed_values} values are out of bounds: the data were damaged on their way"
        doubts.append(reject("wrong-values", first, sentence, "check the cards and links of these nodes"))
    if ranks == 1:
        sentence = "one rank alone exchanges nothing: the figures are those of a copy inside one GPU"
        doubts.append(reject("one-rank", first, sentence, "run with two or more GPUs, MPI=1 across nodes"))
    elif ranks is not None and draft.members and disagrees(operation, rows, ranks):
        guess = guessed_ranks(operation, rows)
        sentence = f"{ranks} ranks are listed, but the figures are those of {guess}"
        doubts.append(reject("ranks-disagree", first, sentence, "send the log of one run"))
    if len(draft.groups) > 1:
        sentence = f"{len(draft.groups)} groups of ranks ran at once: the figures are those of one group"
        doubts.append(reject("split-groups", first, sentence, "measure without NCCL_TESTS_SPLIT"))
    return doubts


def _tool(members: tuple[Member, ...]) -> str:
    return "rccl-tests" if any(member.product.startswith("AMD") for member in members) else "nccl-tests"


def _moment(text: str) -> datetime | None:
    moment = moment_of(text)
    return moment if moment is not None and moment.tzinfo is not None else None
