"""iperf3 -J."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from cluster_models.cluster.measurements import Direction
from readers.frame.facts import Memory, Operation, Origin, Point, RunFact
from readers.frame.figures import figure as figure_of
from readers.frame.findings import Finding, doubt, note, refusal
from readers.frame.reading import Contents
from readers.frame.sources import Line, Source

_SHORT_S: Final = 5.0
_FAR_S: Final = 5e-3
"""Round trips inside one site stay below this."""
_MICRO: Final = 1e-6
_LOST: Final = 0.9
_SHOWN: Final = 120
_NO_FIGURE: Final = ("the test has no rate above 0", "let the test run to its end")


def fits(tree: Any) -> bool:
    """Whether a tree is one test of iperf3, or a list of them."""
    if isinstance(tree, list):
        return bool(tree) and all(fits(test) for test in tree[:8] if not isinstance(test, list))
    return isinstance(tree, dict) and isinstance(tree.get("start"), dict) and ("end" in tree or "error" in tree)


def read_iperf3_json(source: Source, lines: tuple[Line, ...]) -> Contents:
    """One run a test, two where it ran both ways at once."""
    tests = source.tree if isinstance(source.tree, list) else [source.tree]
    facts: list[RunFact] = []
    refusals: list[Finding] = []
    doubts: list[Finding] = []
    places = _lines_with(lines, '"sum_received"')
    last = lines[-1].number if lines else 1
    for number, test in enumerate(tests):
        path = "end" if test is source.tree else f"[{number}].end"
        line = places[number] if len(places) == len(tests) else 1
        if not isinstance(test, dict) or test.get("error"):
            problem = str(test.get("error")) if isinstance(test, dict) else "not a test"
            reason = f"iperf3 failed: {problem}"[:_SHOWN]
            refusals.append(refusal(1, last, reason, "repeat the test", path))
            continue
        found = [
            _run(source, test, line, f"{path}.{key}", reverse=reverse)
            for key, reverse in (("", False), ("bidir_reverse", True))
            if not reverse or f"sum_received_{key}" in _part(test, "end")
        ]
        facts.extend(run[0] for run in found if run is not None)
        doubts.extend(doubt for run in found if run is not None for doubt in run[1])
        if not any(found):
            refusals.append(refusal(1, last, *_NO_FIGURE, path))
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


def _lines_with(lines: tuple[Line, ...], key: str) -> list[int]:
    return [line.number for line in lines if line.text.lstrip().startswith(key)]


def _run(
    source: Source, test: dict[str, Any], line: int, path: str, *, reverse: bool
) -> tuple[RunFact, list[Finding]] | None:
    start, end = _part(test, "start"), _part(test, "end")
    suffix = "_bidir_reverse" if reverse else ""
    received, sent = _part(end, f"sum_received{suffix}"), _part(end, f"sum_sent{suffix}")
    taken, was_received = (received, True) if _rate(received) else (sent, False)
    if not _rate(taken):
        taken = _part(end, "sum")
    rate = _rate(taken)
    if rate is None:
        return None
    options = _part(start, "test_start")
    inward = bool(options.get("reverse")) != reverse
    hosts = _hosts(start)
    version = str(start.get("version") or "").removeprefix("iperf").strip()[:20]
    seconds = _number(_part(start, "timestamp").get("timesecs"))
    fact = RunFact(
        Origin(source.name, line, line, path.rstrip(".")),
        f"iperf3 {version}".rstrip(),
        Operation.POINT_TO_POINT,
        (),
        2,
        hosts[::-1] if inward else hosts,
        (Point(line, None, rate),),
        direction=Direction.FORWARD,
        memory=Memory.HOST,
        nodes=2 if len(set(hosts)) == 2 else None,
        measured_at=datetime.fromtimestamp(seconds, UTC) if seconds and 0 < seconds < 4e9 else None,
    )
    duration = _number(taken.get("seconds")) or 0.0
    doubts = run_doubts(fact, duration, _rate(sent), _round_trip(end), was_received=was_received)
    return fact, doubts


def _hosts(start: Mapping[str, Any]) -> tuple[str, ...]:
    connected = start.get("connected")
    first = connected[0] if isinstance(connected, list) and connected else None
    if not isinstance(first, dict):
        return ()
    names = [str(first.get(end) or "")[:253] for end in ("local_host", "remote_host")]
    return tuple(names) if all(names) else ()


def _round_trip(end: Mapping[str, Any]) -> float | None:
    """The mean round trip of the first stream, in seconds."""
    streams = end.get("streams")
    first = streams[0] if isinstance(streams, list) and streams else None
    mean = _number(_part(first, "sender").get("mean_rtt")) if isinstance(first, dict) else None
    return mean * _MICRO if mean else None


def _part(tree: Mapping[str, Any], key: str) -> dict[str, Any]:
    part = tree.get(key)
    return part if isinstance(part, dict) else {}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return figure_of(repr(value)) if not isinstance(value, int) or abs(value) < 10**18 else None


def _rate(total: Mapping[str, Any]) -> float | None:
    """Bytes per second that arrived; UDP says what was lost."""
    bits = _number(total.get("bits_per_second"))
    lost = _number(total.get("lost_percent")) or 0.0
    rate = None if bits is None else bits / 8 * (1 - min(100.0, max(0.0, lost)) / 100)
    return rate if rate is not None and rate > 0 else None


def run_doubts(
    fact: RunFact, seconds: float, sent: float | None, round_trip_s: float | None, *, was_received: bool
) -> list[Finding]:
    """Findings about a run: too short, far away, counted by the sender only, or much lost on the way."""
    line = fact.points[0].line
    rate = fact.points[0].bytes_per_s or 0.0
    doubts: list[Finding] = []
    if seconds < _SHORT_S:
        sentence = f"the test took {seconds:.1f} s, and the start of a connection is slow"
        doubts.append(doubt("short-run", line, sentence, "run it for 10 s or more, and leave out the start (-O 2)"))
    if round_trip_s is not None and round_trip_s > _FAR_S:
        sentence = f"a round trip of {round_trip_s * 1e3:.0f} ms: the hosts are at different sites"
        doubts.append(note("wan", line, sentence))
    if not was_received:
        sentence = "the figure is what the sender counted: the receiver had as much or less"
        doubts.append(doubt("sender-figure", line, sentence, "send the line of the receiver"))
    elif sent is not None and rate < _LOST * sent:
        sentence = f"the receiver counted {rate / sent:.0%} of what the sender did; the receiver's figure is taken"
        doubts.append(note("receiver-below-sender", line, sentence))
    return doubts
