"""perftest (ib_write_bw, ib_send_bw, ib_read_bw and their latency tests): one card to another.

"MB/sec" is 2^20 bytes a second and "Gb/sec" 10^9 bits: the message rate times the size proves it row by row.
Bidirectional tests print the sum of both ways, of which half is taken.  The bytes lie in host memory unless the
tool says that it took memory of a GPU.  Server and client often print into one file, mixed: the same test is then
told apart by its queue pairs, and kept once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from cluster_models.cluster.measurements import Direction
from readers.frame.facts import Memory, Operation, Origin, Point, RunEnd, RunFact
from readers.frame.figures import figure as figure_of
from readers.frame.findings import Finding, doubt, note, refused
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_TITLE: Final = re.compile(
    r"^\s*(RDMA_Write|RDMA_Read|Send|Raw Ethernet Send|Raw Ethernet|Atomic \w{1,20})\b.{0,40}\b(BW|Latency)"
    r"(?: - Infinite)? Test\s*$"
)
_VERBS: Final = {"RDMA_Write": "ib_write", "RDMA_Read": "ib_read", "Send": "ib_send"}
_ADDRESS: Final = re.compile(
    r"^\s*(local|remote) address: LID (0x[0-9a-fA-F]{1,8}|0{1,8}) QPN (0x[0-9a-fA-F]{1,8})"
)
_GID: Final = re.compile(r"^\s*GID: ([0-9a-fA-F:]{3,60})\s*$")
_HEADER: Final = re.compile(r"^\s*#bytes\s{1,12}#iterations\s")
_COLUMN: Final = re.compile(
    r"#bytes|#iterations|(?:BW |99(?:\.9{1,2})?% )?[A-Za-z_]{1,20}\[[^\]\s]{1,12}\]|tps \w{1,10}", re.ASCII
)
_UNITS: Final = {"MB/sec": 2.0**20, "MiB/sec": 2.0**20, "Gb/sec": 1e9 / 8}
_FAILED: Final = re.compile(
    r"^\s*(?:Couldn't connect|Unable to|Failed to|Completion with error|Did not detect devices|ethernet_read_keys"
    r"|IB device .{1,80} not found|.{0,40}scnt=)"
)
_GPU: Final = re.compile(r".{0,40}(?:allocated .{0,40}GPU buffer|initializing CUDA|creating CUDA Ctx|hipMalloc)")
_MICRO: Final = 1e-6
_UNIT_OFF: Final = 0.03
_FEWEST_DIGITS: Final = 1e-3
"""Message rates (Mpps) below this are printed with fewer than four digits."""


def read_perftest(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Every test of the section, twin outputs of one test once."""
    reader = _Reader()
    for line in lines:
        reader.take(line)
    tests = reader.finished()
    facts, doubts = [], []
    for test in tests:
        if test.points:
            facts.append(test.fact(source))
            doubts.extend(test.doubts())
        elif not reader.refusals:
            reason = "a test without rows: no client came, or the output was cut"
            remedy = "send the output of the client from its start to its end"
            reader.refusals.append(refused(test.first, reason, remedy))
    if not tests and not reader.refusals and lines:
        reason, remedy = "no test in the output", "send the output from the line that names the test"
        reader.refusals.append(refused(lines[0], reason, remedy, lines[-1].number))
    return Contents(tuple(facts), tuple(reader.refusals), tuple(doubts))


@dataclass(slots=True)
class _Test:
    """Output of one test."""

    first: Line
    name: str
    both: bool
    points: list[Point] = field(default_factory=list)
    sizes: set[float] = field(default_factory=set)
    queues: set[str] = field(default_factory=set)
    places: dict[str, set[str]] = field(default_factory=lambda: {"local": set(), "remote": set()})
    on_gpu: bool = False
    side: str = "local"
    columns: tuple[str, ...] = ()
    mismatch: Point | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether both ends are one port: all addresses are the same."""
        local, remote = self.places["local"], self.places["remote"]
        return bool(local) and local == remote and len(local) == 1

    def fact(self, source: Source) -> RunFact:
        """The run."""
        return RunFact(
            Origin(source.name, self.first.number, self.points[-1].line),
            f"perftest {self.name}",
            Operation.POINT_TO_POINT,
            (),
            2,
            (source.host,) if self.is_loopback and source.host else (),
            tuple(self.points),
            end=RunEnd.COMPLETE,
            direction=Direction.BOTH if self.both or self.name.endswith("_lat") else Direction.FORWARD,
            memory=Memory.GPU if self.on_gpu else Memory.HOST,
            nodes=1 if self.is_loopback else None,
            ranks_per_node=2 if self.is_loopback else None,
        )

    def doubts(self) -> list[Finding]:
        """Findings about the test."""
        doubts: list[Finding] = []
        if self.is_loopback:
            sentence = "both ends are the same port: this is the rate of the card, not of a link to another node"
            doubts.append(note("loopback", self.first.number, sentence, "run it between two nodes for a link"))
        if self.both and not self.name.endswith("_lat"):
            sentence = "the test prints the sum of both ways: half of it is taken for one way"
            doubts.append(note("both-directions", self.first.number, sentence))
        if self.mismatch is not None:
            sentence = "bandwidth is not message rate times size: the unit of the header is not that of the rows"
            doubts.append(doubt("unit-mismatch", self.mismatch.line, sentence, "send the tool's own output"))
        return doubts


@dataclass(slots=True)
class _Reader:
    tests: list[_Test] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)

    def take(self, line: Line) -> None:
        """Takes one line; unknown ones are noise."""
        text = line.text
        words = text.split(None, 12)
        if not words:
            return
        if words[0].isdigit() and words[0].isascii():
            self._row(line, words)
        elif text.endswith("Test") and (title := _TITLE.match(text)):
            self._title(line, title)
        elif "#bytes" in text and _HEADER.match(text):
            self._current(line).columns = tuple(_COLUMN.findall(text))
        elif "address:" in text and (address := _ADDRESS.match(text)):
            self._address(line, address)
        elif "GID:" in text and (gid := _GID.match(text)) and self.tests:
            self.tests[-1].places[self.tests[-1].side].add(gid[1].lower())
        elif self.tests and _GPU.match(text):
            self.tests[-1].on_gpu = True
        elif _FAILED.match(text):
            remedy = "see that the server runs and the port is up, and repeat"
            self.refusals.append(refused(line, "the test failed", remedy))

    def _title(self, line: Line, title: re.Match[str]) -> None:
        kind = _VERBS.get(title[1], title[1].lower().replace(" ", "_"))
        name = f"{kind}_{'bw' if title[2] == 'BW' else 'lat'}"
        if self.tests and not self.tests[-1].points and self.tests[-1].name == name:
            return  # the twin of a server and its client, printed into each other
        self.tests.append(_Test(line, name, "Bidirectional" in line.text))

    def _current(self, line: Line) -> _Test:
        """The test in progress; output that was sent without its title is a test of its own."""
        if not self.tests:
            name = "latency" if "usec" in line.text else "bandwidth"
            self.tests.append(_Test(line, name, both=False))
        return self.tests[-1]

    def _address(self, line: Line, address: re.Match[str]) -> None:
        test = self._current(line)
        test.side = address[1]
        test.queues.add(address[3].lower())
        if address[2].strip("0x"):
            test.places[test.side].add(address[2].lower())

    def _row(self, line: Line, words: Sequence[str]) -> None:
        test = self.tests[-1] if self.tests else None
        if test is None or not test.columns or len(words) < len(test.columns):
            return
        figures = dict(zip(test.columns, map(figure_of, words), strict=False))
        size = figures.get("#bytes")
        if size is None or size <= 0 or size in test.sizes:
            return
        point = _point(line.number, size, figures)
        if point is None:
            self.refusals.append(refused(line, "a row without a figure above 0", "repeat the test"))
            return
        test.sizes.add(size)
        half = test.both and point.bytes_per_s is not None
        test.points.append(replace(point, bytes_per_s=(point.bytes_per_s or 0.0) / 2) if half else point)
        messages = figures.get("MsgRate[Mpps]")
        if messages and messages >= _FEWEST_DIGITS and point.bytes_per_s and test.mismatch is None:
            carried = messages * 1e6 * size
            if abs(carried - point.bytes_per_s) > _UNIT_OFF * carried:
                test.mismatch = point

    def finished(self) -> list[_Test]:
        """The tests; of a server's and a client's output of one test, the first."""
        kept: dict[tuple[str, frozenset[str]], _Test] = {}
        for number, test in enumerate(self.tests):
            key = (test.name, frozenset(test.queues) or frozenset({str(number)}))
            twin = kept.get(key)
            if twin is None or {p.message_bytes for p in twin.points} != {p.message_bytes for p in test.points}:
                kept[key if twin is None else (f"{test.name} {number}", key[1])] = test
        return list(kept.values())


def _point(line: int, size: float, figures: dict[str, float | None]) -> Point | None:
    """The average of a row: bandwidth, or time one way."""
    for name, value in figures.items():
        unit = next((scale for word, scale in _UNITS.items() if name.endswith(f"[{word}]")), None)
        if unit is not None and "average" in name:
            return Point(line, size, value * unit) if value else None
    time = figures.get("t_typical[usec]") or figures.get("t_avg[usec]")
    return Point(line, size, None, time * _MICRO) if time else None


FORMAT: Final = Format(
    name="perftest",
    known_as="perftest (ib_write_bw and its kin)",
    family="network",
    read=read_perftest,
    begins=(_TITLE, _HEADER),
)
