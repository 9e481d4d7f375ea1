"""p2pBandwidthLatencyTest of the CUDA samples: tables between the GPUs of one machine.

A row's GPU sends to the column's GPU, except in the tables of peer-to-peer reads.  Bidirectional figures are the
sum of both ways and stay so: their ``direction`` is ``BOTH``.  The tables headed CPU are the time that the
processor takes to start a copy; they are given as latencies of host memory, and say nothing of a link.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster_models.cluster.measurements import Direction
from readers.formats.gpu_matrices import (
    GIGA,
    Table,
    both_directions,
    cut_short,
    read_table,
    scaled,
    turned,
    warm_up,
    without_diagonal,
)
from readers.frame.facts import MatrixFact, Memory, Origin, Quantity
from readers.frame.findings import Finding, doubt, refused
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

TOOL: Final = "p2pBandwidthLatencyTest"
_ACCESS: Final = re.compile(r"^\s*P2P Connectivity Matrix\s*$")
_BANDWIDTH: Final = re.compile(
    r"^\s*(Unidirectional|Bidirectional) P2P=(Enabled|Disabled) Bandwidth(?: \(P2P (Writes|Reads)\))? Matrix"
    r" \(GB/s\)"
)
_LATENCY: Final = re.compile(r"^\s*P2P=(Enabled|Disabled) Latency(?: \(P2P (Writes|Reads)\))? Matrix \(us\)")
_PEERS: Final = re.compile(r"^\s*Device ?= ?(\d{1,4}) (CAN|CANNOT) Access Peer Device ?= ?(\d{1,4})\s*$")
_TITLE_LOOK: Final = ("P2P", "Dev", "Uni", "Bid")
_MICRO: Final = 1e-6
_BLANKS: Final = 3


def read_p2p_test(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Every table of the section, access, bandwidth and latency."""
    reader = _Reader(source)
    at = 0
    while at < len(lines):
        text = lines[at].text.lstrip()
        at = reader.title(lines, at) if text.startswith(_TITLE_LOOK) else at + 1
    if not reader.facts and not reader.refusals and lines:
        remedy = "let the test run to its end, and send it all"
        reader.refusals.append(refused(lines[0], "the output has no table", remedy, lines[-1].number))
    reader.judge()
    return Contents(tuple(reader.facts), tuple(reader.refusals), tuple(reader.doubts))


@dataclass(slots=True)
class _Reader:
    source: Source
    facts: list[MatrixFact] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)
    unreachable: set[tuple[str, str]] = field(default_factory=set)
    reachable: int = 0

    def title(self, lines: Sequence[Line], at: int) -> int:
        """Reads what the line at ``at`` announces; the index to go on from."""
        text = lines[at].text
        peers = _PEERS.match(text)
        if peers is not None:
            self._peer(peers[1], peers[3], reached=peers[2] == "CAN")
            return at + 1
        if _ACCESS.match(text):
            return self._access(lines, at)
        bandwidth = _BANDWIDTH.match(text)
        if bandwidth is not None:
            return self._bandwidth(lines, at, bandwidth)
        latency = _LATENCY.match(text)
        return at + 1 if latency is None else self._latency(lines, at, latency)

    def _peer(self, first: str, second: str, *, reached: bool) -> None:
        if reached:
            self.reachable += 1
        else:
            self.unreachable.add((first, second))

    def _table(self, lines: Sequence[Line], at: int) -> Table | None:
        for start in range(at + 1, min(at + 1 + _BLANKS, len(lines))):
            if lines[start].text.strip():
                table = read_table(lines, start)
                if table is None:
                    break
                self.refusals.extend(table.refusals)
                self.doubts.extend(cut_short(table, f"the table on line {lines[at].number}"))
                return table
        self.refusals.append(refused(lines[at], "a title without its table", "send the output with the rows"))
        return None

    def _access(self, lines: Sequence[Line], at: int) -> int:
        table = self._table(lines, at)
        if table is None:
            return at + 1
        for row, figures in zip(table.rows, table.values, strict=True):
            for column, value in zip(table.columns, figures, strict=True):
                if row != column and value is not None:
                    self._peer(row, column, reached=value > 0)
        self._add(table, lines[at], quantity=Quantity.ACCESS, direction=Direction.FORWARD, method="")
        return table.after

    def _bandwidth(self, lines: Sequence[Line], at: int, title: re.Match[str]) -> int:
        table = self._table(lines, at)
        if table is None:
            return at + 1
        after = table.after
        if title[3] == "Reads" and len(table.rows) == len(table.columns):
            table = turned(table)
        both = title[1] == "Bidirectional"
        fact = self._add(
            table,
            lines[at],
            quantity=Quantity.BANDWIDTH,
            direction=Direction.BOTH if both else Direction.FORWARD,
            method=_method(title[2], title[3]),
            enabled=title[2] == "Enabled",
        )
        self.doubts.extend(warm_up(fact.values, table.header))
        return after

    def _latency(self, lines: Sequence[Line], at: int, title: re.Match[str]) -> int:
        after = at
        for _ in range(2):
            start = next(
                (i for i in range(after + 1, min(after + 1 + _BLANKS, len(lines))) if lines[i].text.strip()), None
            )
            if start is None or (after > at and not lines[start].text.lstrip().startswith("CPU")):
                break
            table = self._table(lines, start - 1 if after > at else at)
            if table is None:
                break
            by_cpu = lines[start].text.lstrip().startswith("CPU")
            self._add(
                table,
                lines[start] if by_cpu else lines[at],
                quantity=Quantity.LATENCY,
                direction=Direction.FORWARD,
                method=_method(title[1], title[2]) + (", start by the CPU" if by_cpu else ""),
                enabled=title[1] == "Enabled",
                memory=Memory.HOST if by_cpu else Memory.GPU,
            )
            after = table.after - 1
        return after + 1

    def _add(
        self,
        table: Table,
        title: Line,
        *,
        quantity: Quantity,
        direction: Direction,
        method: str,
        enabled: bool | None = None,
        memory: Memory = Memory.GPU,
    ) -> MatrixFact:
        unit = {Quantity.BANDWIDTH: GIGA, Quantity.LATENCY: _MICRO, Quantity.ACCESS: 1.0}[quantity]
        values = table.values
        if quantity is not Quantity.ACCESS:
            values = without_diagonal(scaled(values, unit))
        last = max((title.number, *table.lines))
        fact = MatrixFact(
            Origin(self.source.name, title.number, last),
            TOOL,
            "gpus",
            self.source.host,
            table.rows,
            table.columns,
            {},
            quantity,
            values,
            table.lines,
            direction,
            memory=memory,
            peer_access=None if enabled is None else enabled and not self._none_reach(),
            method=method,
            cut=table.cut,
        )
        self.facts.append(fact)
        return fact

    def _none_reach(self) -> bool:
        return bool(self.unreachable) and not self.reachable

    def judge(self) -> None:
        """Facts and findings of all tables together."""
        enabled = [fact for fact in self.facts if fact.method.startswith("p2p=enabled")]
        if self.unreachable and enabled:
            pairs = ", ".join(f"{a} to {b}" for a, b in sorted(self.unreachable)[:4])
            more = ", ..." if len(self.unreachable) > len(sorted(self.unreachable)[:4]) else ""
            self.doubts.append(
                doubt(
                    "no-peer-access",
                    enabled[0].origin.first_line,
                    f"tables say P2P=Enabled, but these GPUs cannot reach each other: {pairs}{more};"
                    " their figures went through host memory",
                    "keep them as the way through the host, which is what a program gets there",
                )
            )
        self.doubts.extend(both_directions(self.facts))


def _method(enabled: str, how: str | None) -> str:
    return f"p2p={enabled.lower()}" + (f", {how.lower()}" if how else "")


FORMAT: Final = Format(
    name="p2p-test",
    known_as="p2pBandwidthLatencyTest of the CUDA samples",
    family="gpu",
    read=read_p2p_test,
    begins=(
        re.compile(r"^\s*\[P2P \(Peer-to-Peer\) GPU Bandwidth Latency Test\]"),
        _ACCESS,
        _BANDWIDTH,
        _LATENCY,
        _PEERS,
    ),
)
