"""nvbandwidth -j: the same tables as text in JSON, figures as strings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from readers.formats.gpu_matrices import MOST_DEVICES, Table, Values, both_directions
from readers.formats.nvidia.nvbandwidth_tables import (
    NO_PAIR,
    SEND_PAIRS,
    TOOL,
    WAIVED,
    Machine,
    Title,
    doubts_of,
    matrix_of,
    sum_is_off,
    title_of,
)
from readers.frame.facts import MatrixFact, Origin
from readers.frame.figures import figure as figure_of
from readers.frame.findings import Finding, doubt, refusal
from readers.frame.reading import Contents
from readers.frame.sources import Line, Source

_PROCESS: Final = re.compile(r"\s*(?:Process )?(\d{1,5}) \(([^\s()]{1,253})\): device \d")
_STREAMS: Final = 3
_SHOWN: Final = 120
_AS_PRINTED: Final = "send what the tool printed"


def fits(tree: Any) -> bool:
    """Whether a tree is of nvbandwidth."""
    return isinstance(tree, dict) and isinstance(tree.get(TOOL), dict)


def read_nvbandwidth_json(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Every test that passed; the others are refused with their status."""
    root = source.tree.get(TOOL) if isinstance(source.tree, dict) else None
    reader = _Reader(source, len(lines) or 1)
    if not isinstance(root, dict):
        reader.refuse("", "the file has no object nvbandwidth", _AS_PRINTED)
        return reader.understood()
    if "error" in root:
        reader.refuse("nvbandwidth.error", f"the tool failed: {str(root['error'])[:_SHOWN]}", "repeat the run")
    machine = _machine(root, source.host)
    tests = root.get("testcases")
    for number, test in enumerate(tests if isinstance(tests, list) else ()):
        if isinstance(test, dict):
            reader.test(test, number, machine)
    if not (reader.facts or reader.refusals):
        reader.refuse("nvbandwidth.testcases", "the run has no tests", "run the tool without -l")
    return reader.understood()


def _machine(root: dict[str, Any], host: str | None) -> Machine:
    version = str(root.get("version") or "").removeprefix("v")[:40]
    listed = root.get("GPU Device list")
    devices = [str(device) for device in listed] if isinstance(listed, list) else []
    processes = {found[1]: found[2] for found in map(_PROCESS.match, devices) if found is not None}
    return Machine(f"{TOOL} {version}".rstrip(), host, len(devices), processes)


@dataclass(slots=True)
class _Reader:
    source: Source
    last_line: int
    facts: list[MatrixFact] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)
    searched: int = 0
    line: int = 1

    def test(self, test: dict[str, Any], number: int, machine: Machine) -> None:
        name, status = str(test.get("name") or ""), str(test.get("status") or "")
        self._find(name)
        path = f"nvbandwidth.testcases[{number}]"
        if status == "Waived":
            self.refuse(path, *WAIVED)
            return
        values = _values(test.get("bandwidth_matrix"))
        title = title_of(str(test.get("bandwidth_description") or ""), name)
        if status not in {"Passed", ""} or values is None or title is None:
            reason = "the table does not hold figures" if status == "Passed" else f"the test ended as {status!r}"
            self.refuse(path, f"{name}: {reason}"[:_SHOWN], "repeat this test")
            return
        self._matrix(values, title, machine, path, test.get("sum"))

    def _matrix(self, values: Values, title: Title, machine: Machine, path: str, stated: Any) -> None:
        width = len(values[0])
        whole = values
        if width > 1 and len(values) == _STREAMS * width:
            values = values[-width:]  # both streams and their total stand in one list; the title is of the last
        rows, columns = (tuple(map(str, range(count))) for count in (len(values), width))
        square = "CPU" not in title.ends
        cut = square and 1 < len(rows) < len(columns)
        table = Table(rows, columns, values, (self.line,) * len(rows), self.line, 0, cut, ())
        fact = matrix_of(table, title, machine, Origin(self.source.name, self.line, self.line, path))
        if fact is None:
            self.refuse(path, NO_PAIR, SEND_PAIRS)
            return
        self.facts.append(fact)
        self.doubts.extend(doubts_of(fact, table, machine))
        total = figure_of(str(stated))
        if total is not None and sum_is_off(whole, total) and sum_is_off(values, total):
            sentence = f"the figures of {title.test} do not add up to {total:g}, as the tool says"
            self.doubts.append(doubt("partial", self.line, sentence, _AS_PRINTED))

    def _find(self, name: str) -> None:
        """Moves on to the line where the test's name stands."""
        at = self.source.text.find(f'"{name}"', self.searched)
        if at < 0:
            self.searched = len(self.source.text)  # one search through the text for all tests, not one for each
            return
        self.line = min(self.last_line, self.line + self.source.text.count("\n", self.searched, at))
        self.searched = at + 1

    def refuse(self, path: str, reason: str, remedy: str) -> None:
        """A test that is not used."""
        self.refusals.append(refusal(self.line, self.line, reason, remedy, path))

    def understood(self) -> Contents:
        """Facts, refusals and doubts found."""
        return Contents(tuple(self.facts), tuple(self.refusals), (*self.doubts, *both_directions(self.facts)))


def _values(matrix: Any) -> Values | None:
    """The figures; ``None`` where rows differ in length or hold something else."""
    if not isinstance(matrix, list) or not 0 < len(matrix) <= _STREAMS * MOST_DEVICES:
        return None
    rows: list[tuple[float | None, ...]] = []
    for row in matrix:
        if not isinstance(row, list) or not row or len(row) != len(matrix[0]):
            return None
        figures = [None if str(cell) == "N/A" else figure_of(str(cell)) for cell in row]
        if any(figure is None and str(cell) != "N/A" for figure, cell in zip(figures, row, strict=True)):
            return None
        rows.append(tuple(figures))
    return tuple(rows)
