"""OSU micro-benchmarks: bandwidth and latency between two ranks, and latencies of collectives.

A megabyte is 10^6 bytes, as the benchmarks count.  ``osu_bibw`` prints the sum of both ways, of which half is
taken.  The output names no host: how many there were is read off the command where it was pasted along.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster_models.cluster.measurements import Direction
from readers.frame.facts import Memory, Operation, Origin, Point, RunFact
from readers.frame.figures import figure as figure_of
from readers.frame.findings import Finding, doubt, note, refused
from readers.frame.launch_commands import Launch, launch_of
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_TITLE: Final = re.compile(
    r"^\s*(?:#\s*)?OSU (MPI|NCCL|RCCL|XCCL|UCC)(-CUDA|-ROCM|-SYCL|-OPENACC)?[ _]"
    r"(\S.{0,80}?)(?: v(\d[\w.]{0,12}))?\s*$"
)
_COMMAND: Final = re.compile(
    r"^.{0,600}?\bosu_(?:bw|bibw|latency|mbw_mr|multi_lat|i?all|i?reduce|i?bcast|i?gather|i?scatter)\w{0,20}(?=\s|$)"
)
_BUFFERS: Final = re.compile(r"^\s*#? *Send Buffer on (\w{4,12}) .{0,8} and Receive Buffer on (\w{4,12}) ")
_HEADER: Final = re.compile(r"^\s*(?:# ?)?Size\s+(\S.*)$")
_OPERATIONS: Final = (
    ("all-to-all", Operation.ALL_TO_ALL),
    ("alltoall", Operation.ALL_TO_ALL),
    ("allreduce", Operation.ALL_REDUCE),
    ("allgather", Operation.ALL_GATHER),
    ("reduce_scatter", Operation.REDUCE_SCATTER),
    ("broadcast", Operation.BROADCAST),
    ("bcast", Operation.BROADCAST),
    ("reduce", Operation.REDUCE),
    ("gather", Operation.GATHER),
    ("scatter", Operation.SCATTER),
)
_MEGA: Final = 1e6
_MICRO: Final = 1e-6
_UNSTABLE_DROP, _UNSTABLE_ROWS = 0.7, 3
_SLOW: Final = 3.125e9
"""25 Gbit/s: cards for GPUs have been faster for ten years."""
_CARDS: Final = (12.5e9, 25e9, 50e9)
"""100, 200 and 400 Gbit/s, in bytes per second."""
_OF_CARD: Final = (0.9, 1.0)


def read_osu(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Every test of the section."""
    tests: list[_Test] = []
    command: Line | None = None
    refusals: list[Finding] = []
    for line in lines:
        title = _TITLE.match(line.text) if "OSU" in line.text else None
        if title is not None:
            tests.append(_Test(title, line, command))
            command = None
        elif "osu_" in line.text and _COMMAND.match(line.text):
            command = line  # the last one before the title is of the test
        elif tests:
            refusals.extend(tests[-1].take(line))
    facts = tuple(fact for test in tests for fact in test.facts(source))
    refusals.extend(test.refusal() for test in tests if not test.points)
    if not tests and lines:
        reason, remedy = "a command without its output", "send what it printed, from the line # OSU"
        refusals.append(refused(lines[0], reason, remedy, lines[-1].number))
    return Contents(facts, tuple(refusals), tuple(doubt for fact in facts for doubt in _doubts(fact)))


@dataclass(slots=True)
class _Test:
    """One test, as its lines come."""

    title: re.Match[str]
    first: Line
    command: Line | None
    points: list[Point] = field(default_factory=list)
    buffers: tuple[str, str] | None = None
    unit: str = ""
    pairs: int = 1

    def take(self, line: Line) -> list[Finding]:
        """Takes a row or a line of the header; other lines are a launcher's noise."""
        text = line.text
        words = text.split(None, 6)
        if len(words) > 1 and words[0].isdecimal():
            return self._row(line, words)
        if self.buffers is None and "Send Buffer" in text:
            found = _BUFFERS.match(text)
            self.buffers = (found[1].upper(), found[2].upper()) if found else None
        elif not self.unit and "Size" in text:
            header = _HEADER.match(text)
            self.unit = (
                "" if header is None else ("MB/s" if "MB/s" in header[1] else "us" if "us" in header[1] else "")
            )
        elif "[ pairs:" in text:
            found = re.search(r"\[ pairs: (\d{1,6}) \]", text)
            self.pairs = int(found[1]) if found else 1
        return []

    def _row(self, line: Line, words: list[str]) -> list[Finding]:
        size, value = figure_of(words[0]), figure_of(words[1])
        unit = self.unit or ("MB/s" if "bandwidth" in self.title[3].lower() else "us")
        reason = ""
        if size is None or value is None or value <= 0:
            reason = "a row without a figure above 0"
        elif len(words) > 2 and any(word.lower() == "fail" for word in words[2:]):
            reason = "the benchmark's own check of the data failed"
        if reason:
            remedy = "repeat the test; wrong data make its figures worthless"
            return [refused(line, reason, remedy)]
        if size and value:
            ways = 2 if "bi-directional" in self.title[3].lower() else 1
            rate = value * _MEGA / ways if unit == "MB/s" else None
            self.points.append(Point(line.number, size, rate, value * _MICRO if unit == "us" else None))
        return []

    def facts(self, source: Source) -> tuple[RunFact, ...]:
        """The run of this test, if it has rows."""
        if not self.points:
            return ()
        name = self.title[3].lower()
        operation = next((operation for word, operation in _OPERATIONS if word in name), Operation.POINT_TO_POINT)
        launch = launch_of(self.command.text if self.command else "")
        pairwise = operation is Operation.POINT_TO_POINT and self.pairs == 1
        ranks = 2 if pairwise and "multi" not in name else launch.ranks
        nodes = launch.nodes if ranks is None or launch.nodes is None else min(launch.nodes, ranks)
        origin = Origin(source.name, (self.command or self.first).number, self.points[-1].line)
        return (
            RunFact(
                origin,
                f"OSU {self.title[4] or ''}".rstrip(),
                operation,
                (),
                ranks,
                launch.hosts,
                tuple(self.points),
                direction=_direction(operation, name),
                memory=self._memory(launch),
                nodes=nodes,
                ranks_per_node=ranks // nodes if ranks and nodes and ranks % nodes == 0 else None,
                pairs_active=self.pairs,
            ),
        )

    def _memory(self, launch: Launch) -> Memory:
        if self.buffers is not None:
            on_device = all(buffer in {"DEVICE", "MANAGED"} for buffer in self.buffers)
            return Memory.GPU if on_device else Memory.HOST
        if launch.buffers:
            return Memory.GPU if launch.buffers == "D" else Memory.HOST
        return Memory.GPU if self.title[2] or self.title[1] != "MPI" else Memory.HOST

    def refusal(self) -> Finding:
        """Refusal of a test without rows."""
        remedy = "look for the error of the launcher, and repeat the test"
        return refused(self.first, "a test without rows: it did not start, or was cut", remedy)


def _direction(operation: Operation, name: str) -> Direction:
    if operation is not Operation.POINT_TO_POINT or "bi-directional" in name or "latency" in name:
        return Direction.BOTH
    return Direction.FORWARD


def _doubts(fact: RunFact) -> Sequence[Finding]:
    rates = [point.bytes_per_s for point in fact.points if point.bytes_per_s is not None]
    if fact.operation is not Operation.POINT_TO_POINT or not rates:
        return ()
    doubts: list[Finding] = []
    line = fact.origin.first_line
    if fact.direction is Direction.BOTH:
        sentence = "the benchmark prints the sum of both ways: half of it is taken for one way"
        doubts.append(note("both-directions", line, sentence))
    drops = _drops(rates)
    if drops >= _UNSTABLE_ROWS:
        sentence = f"{drops} of {len(rates)} sizes are more than 30 % below a smaller one"
        doubts.append(doubt("unstable", line, sentence, "repeat the test on idle nodes"))
    best = max(rates)
    if fact.nodes == 1 and any(_OF_CARD[0] * card <= best <= _OF_CARD[1] * card for card in _CARDS):
        sentence = f"{best / 1e9:.2f} GB/s inside one node is the rate of a network card, not of NVLink"
        remedy = "send p2pBandwidthLatencyTest or nvbandwidth of this node; MPI may have gone through the card"
        doubts.append(doubt("nic-figure-for-nvlink", line, sentence, remedy))
    large = fact.points[-1].message_bytes or 0
    if fact.nodes is not None and fact.nodes > 1 and best < _SLOW and large >= 1 << 20:
        sentence = f"{best / 1e9:.2f} GB/s between nodes is below 25 Gbit/s: MPI may have fallen back to TCP"
        remedy = "check the fabric's provider (UCX, libfabric) and repeat"
        doubts.append(doubt("tcp-fallback", line, sentence, remedy))
    return doubts


def _drops(rates: Sequence[float]) -> int:
    """Count of rates far below the best of a smaller size."""
    best = 0.0
    drops = 0
    for rate in rates:
        drops += rate < _UNSTABLE_DROP * best
        best = max(best, rate)
    return drops


FORMAT: Final = Format(
    name="osu",
    known_as="OSU micro-benchmarks",
    family="mpi",
    read=read_osu,
    begins=(_COMMAND, _TITLE),
)
