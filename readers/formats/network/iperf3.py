"""iperf3 as JSON and as text, and the text of iperf 2: TCP or UDP between two hosts, through host memory.

The figure is what the receiver counted; what the sender put into its own buffers is more.  Bits are decimal, bytes
("GBytes/sec") are powers of 1,024, as iperf prints them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from cluster_models.cluster.measurements import Direction
from readers.formats.network.iperf3_json import fits, read_iperf3_json, run_doubts
from readers.frame.facts import Memory, Operation, Origin, Point, RunFact
from readers.frame.figures import figure as figure_of
from readers.frame.findings import Finding, doubt, refusal, refused
from readers.frame.numbers import moment_of
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_CONNECTING: Final = re.compile(r"^\s*(?:Connecting to host|Client connecting to) (\S{1,253}), (?:TCP )?port \d")
_ACCEPTED: Final = re.compile(r"^\s*Accepted connection from (\S{1,253}), port \d")
_LOCAL: Final = re.compile(
    r"^\s*\[ *\d{1,5}\](?:\[\S{1,8}\])? local (\S{1,253}) port \d{1,5} connected (?:to|with) (\S{1,253})"
)
_REVERSE: Final = re.compile(r"^\s*Reverse mode, remote host (\S{1,253}) is sending")
_ROW: Final = re.compile(
    r"^\s*\[ *(SUM|\d{1,5})\](?:\[(\S{1,8})\])?\s{1,8}(\d{1,7}\.\d{1,4}) *- *(\d{1,7}\.\d{1,4})\s{1,8}sec"
    r"\s{1,8}\S{1,12} [KMGT]?Bytes\s{1,8}(\S{1,12}) ([KMGT]?)(bits|Bytes)/sec(.{0,120})$"
)
_TIME: Final = re.compile(r"^\s*Time: (\S.{5,50})$")
_ERROR: Final = re.compile(r"^\s*iperf3?: error - (.{1,200})$")
_BITS: Final = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BYTES: Final = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
_LOST: Final = re.compile(r"\((\d{1,3}(?:\.\d{1,4})?)%\)")


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of figures."""

    line: int
    stream: str
    begin: float
    end: float
    bytes_per_s: float
    role: str
    """"sender", "receiver", or nothing."""
    way: str
    """"TX-C" and "RX-C" of tests both ways at once."""


def read_iperf3(source: Source, lines: tuple[Line, ...]) -> Contents:
    """One run for each test of the section, two where it ran both ways at once."""
    tests: list[_Test] = []
    refusals: list[Finding] = []
    for line in lines:
        text = line.text
        opened = _CONNECTING.match(text) or _ACCEPTED.match(text)
        error = _ERROR.match(text) if "error" in text else None
        if error is not None:
            remedy = "see that the server runs and its port is open, and repeat"
            refusals.append(refused(line, f"iperf failed: {error[1]}", remedy))
        elif opened is not None:
            tool = "iperf" if text.lstrip().startswith("Client connecting") else "iperf3"
            tests.append(_Test(line.number, tool, is_server="Accepted" in text))
        else:
            if not tests and ("local" in text or "sec" in text):
                tests.append(_Test(line.number))
            if tests:
                tests[-1].take(line)
    facts: list[RunFact] = []
    doubts: list[Finding] = []
    for test in tests:
        found = test.runs(source)
        facts.extend(fact for fact, _ in found)
        doubts.extend(doubt for _, told in found for doubt in told)
        if not found and not refusals:
            remedy = "let the test run to its end"
            reason = "a connection without figures"
            refusals.append(refusal(test.first_line, test.first_line, reason, remedy))
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


@dataclass(slots=True)
class _Test:
    first_line: int
    tool: str = "iperf3"
    is_server: bool = False
    ends: tuple[str, str] | None = None
    reverse: bool = False
    rows: list[_Row] = field(default_factory=list)
    started: datetime | None = None

    def take(self, line: Line) -> None:
        """Takes one line; unknown ones are noise."""
        text = line.text
        row = _ROW.match(text) if "/sec" in text else None
        if row is not None:
            self._row(line, row)
        elif " local " in text and (ends := _LOCAL.match(text)):
            self.ends = self.ends or (ends[1], ends[2])
        elif _REVERSE.match(text):
            self.reverse = True
        elif text.lstrip().startswith("Time:") and (time := _TIME.match(text)):
            self.started = moment_of(time[1].removesuffix(" GMT")) or moment_of(time[1])

    def _row(self, line: Line, row: re.Match[str]) -> None:
        begin, end, figure = figure_of(row[3]), figure_of(row[4]), figure_of(row[5])
        if begin is None or end is None or figure is None or end <= begin or "(omitted)" in row[8]:
            return
        scale = _BITS[row[6]] / 8 if row[7] == "bits" else _BYTES[row[6]]
        lost = _LOST.search(row[8])
        carried = 1 - min(100.0, float(lost[1])) / 100 if lost else 1.0
        role = next((word for word in ("sender", "receiver") if word in row[8]), "")
        self.rows.append(_Row(line.number, row[1], begin, end, figure * scale * carried, role, row[2] or ""))

    def runs(self, source: Source) -> list[tuple[RunFact, list[Finding]]]:
        """The run, with what is odd about it; of a test both ways, one run a way."""
        ways = sorted({row.way for row in self.rows if row.role} or {row.way for row in self.rows})
        return [found for way in ways if (found := self._run(source, way)) is not None]

    def _run(self, source: Source, way: str) -> tuple[RunFact, list[Finding]] | None:
        rows = [row for row in self.rows if row.way == way]
        received = _total(rows, "receiver")
        sent = _total(rows, "sender")
        taken = received or sent or _total(rows, "")
        if taken is None or taken.bytes_per_s <= 0:
            return None
        inward = self.is_server != self.reverse if not way else way.startswith("RX")
        hosts = () if self.ends is None else (self.ends[::-1] if inward else self.ends)
        fact = RunFact(
            Origin(source.name, self.first_line, taken.line),
            self.tool,
            Operation.POINT_TO_POINT,
            (),
            2,
            hosts,
            (Point(taken.line, None, taken.bytes_per_s),),
            direction=Direction.FORWARD,
            memory=Memory.HOST,
            nodes=2 if hosts and hosts[0] != hosts[1] else None,
            measured_at=self.started,
        )
        sent_rate = sent.bytes_per_s if sent else None
        doubts = run_doubts(fact, taken.end - taken.begin, sent_rate, None, was_received=received is not None)
        if not any(row.role for row in rows):
            sentence = "no closing line with sender and receiver: the best-covering line before it was taken"
            doubts.append(doubt("partial", taken.line, sentence, "send the output to its end"))
        return fact, doubts


def _total(rows: Sequence[_Row], role: str) -> _Row | None:
    """The line of all streams over the longest time, of one role or of none."""
    fitting = [row for row in rows if row.role == role]
    sums = [row for row in fitting if row.stream == "SUM"] or fitting
    return max(sums, key=lambda row: (row.end - row.begin, row.line), default=None)


FORMATS: Final = (
    Format(
        name="iperf3",
        known_as="iperf3, text output",
        family="network",
        read=read_iperf3,
        begins=(_CONNECTING, _ACCEPTED, _LOCAL),
    ),
    Format(name="iperf3-json", known_as="iperf3 -J", family="network", read=read_iperf3_json, fits=fits),
)
