"""nvbandwidth: tables of copies between GPUs, and between GPUs and the host; a file may hold several runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from readers.formats.gpu_matrices import Table, both_directions, read_table
from readers.formats.nvidia.nvbandwidth_json import fits, read_nvbandwidth_json
from readers.formats.nvidia.nvbandwidth_tables import (
    NO_PAIR,
    SEND_PAIRS,
    TOOL,
    WAIVED,
    Machine,
    doubts_of,
    matrix_of,
    sum_is_off,
    title_of,
)
from readers.frame.facts import MatrixFact, Origin
from readers.frame.figures import figure as figure_of
from readers.frame.findings import Finding, doubt, refused
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_VERSION: Final = re.compile(r"^\s*nvbandwidth Version: v?(\S{1,40})")
_RUNNING: Final = re.compile(r"^\s*Running (?:testcase |benchmark )?(\w{1,120})\.?\s*$")
_DEVICE: Final = re.compile(r"^\s*Device (\d{1,4}): (\S.{0,200})$")
_PROCESS: Final = re.compile(r"^\s*Process (\d{1,5}) \(([^\s()]{1,253})\): device (\d{1,4}): (\S.{0,200})$")
_SUM: Final = re.compile(r"^\s*SUM (\w{1,120}) (\S{1,40})\s*$")
_WAIVED: Final = re.compile(r"^\s*Waived:?\s*\S{0,120}\s*$")
_ERROR: Final = re.compile(r"^\s*(?:ERROR\b|Error:|\[?CUDA_ERROR|NVML_ERROR|Invalid value when)")
_BLANKS: Final = 2


def read_nvbandwidth(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Every table of the section; a file may hold several runs."""
    reader = _Reader(source, Machine(TOOL, source.host, 0, {}))
    at = 0
    while at < len(lines):
        at = reader.step(lines, at)
    if lines and not (reader.facts or reader.refusals):
        remedy = "let the tool run to its end, and send all of its output"
        reader.refusals.append(refused(lines[0], "the output has no table", remedy, lines[-1].number))
    facts = tuple(found.fact for found in reader.facts)
    return Contents(facts, tuple(reader.refusals), (*reader.doubts, *both_directions(facts)))


@dataclass(frozen=True, slots=True)
class _Found:
    fact: MatrixFact
    table: Table
    test: str


@dataclass(slots=True)
class _Reader:
    source: Source
    machine: Machine
    test: str = ""
    facts: list[_Found] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)

    def step(self, lines: Sequence[Line], at: int) -> int:
        """Takes the line at ``at``; the index to go on from."""
        text = lines[at].text
        if "(row" in text or "(column" in text:
            return self._table(lines, at)
        running = _RUNNING.match(text)
        if running is not None:
            self.test = running[1]
        elif "SUM" in text:
            self._sum(lines[at])
        elif "Waived" in text:
            return self._waived(lines, at)
        elif _ERROR.match(text):
            remedy = "repeat the test once the error is gone"
            self.refusals.append(refused(lines[at], f"the tool failed in {self.test or 'a test'}", remedy))
        else:
            self._header(text)
        return at + 1

    def _header(self, text: str) -> None:
        version = _VERSION.match(text)
        if version is not None:
            self.machine = Machine(f"{TOOL} {version[1]}", self.source.host, 0, {})
            self.test = ""
            return
        process = _PROCESS.match(text)
        if process is not None:
            self.machine.processes[process[1]] = process[2]
            self.machine = replace(self.machine, devices=len(self.machine.processes))
        elif _DEVICE.match(text):
            self.machine = replace(self.machine, devices=self.machine.devices + 1)

    def _table(self, lines: Sequence[Line], at: int) -> int:
        title = title_of(lines[at].text, self.test)
        square = title is not None and "CPU" not in title.ends
        table = None
        for start in range(at + 1, min(at + 1 + _BLANKS, len(lines))):
            table = table or read_table(lines, start, square=square)
        if title is None or table is None:
            reason = "a title without its table" if title else "a table of another kind than between two devices"
            after = table.after if table else at + 1
            remedy = "none: only copies between devices are read"
            self.refusals.append(refused(lines[at], reason, remedy, lines[after - 1].number))
            return after
        origin = Origin(self.source.name, lines[at].number, lines[table.after - 1].number)
        self.refusals.extend(table.refusals)
        fact = matrix_of(table, title, self.machine, origin)
        if fact is None:
            self.refusals.append(refused(lines[at], NO_PAIR, SEND_PAIRS, origin.last_line))
        else:
            self.facts.append(_Found(fact, table, self.test))
            self.doubts.extend(doubts_of(fact, table, self.machine))
        return table.after

    def _sum(self, line: Line) -> None:
        found = _SUM.match(line.text)
        stated = None if found is None else figure_of(found[2])
        if found is None or stated is None or not self.facts or self.facts[-1].test != found[1]:
            return
        if sum_is_off(self.facts[-1].table.values, stated):
            sentence = f"the figures of {found[1]} do not add up to {found[2]}, as the tool says"
            remedy = "send the whole output as the tool printed it"
            self.doubts.append(doubt("partial", line.number, sentence, remedy))

    def _waived(self, lines: Sequence[Line], at: int) -> int:
        after = at
        while after < len(lines) and _WAIVED.match(lines[after].text):
            after += 1
        if after == at:
            return at + 1
        self.refusals.append(refused(lines[at], *WAIVED, lines[after - 1].number))
        return after


FORMATS: Final = (
    Format(
        name="nvbandwidth",
        known_as="nvbandwidth, text output",
        family="gpu",
        read=read_nvbandwidth,
        begins=(
            _VERSION,
            _PROCESS,
            re.compile(r"^\s*Running \w{0,100}(?:memcpy|latency|local_copy|multicast)\w{0,100}\.?\s*$"),
            re.compile(r"^\s*(?:memcpy|memory latency) .{0,40}(?:GPU|CPU)\((?:row|column)"),
        ),
    ),
    Format(
        name="nvbandwidth-json",
        known_as="nvbandwidth -j",
        family="gpu",
        read=read_nvbandwidth_json,
        fits=fits,
    ),
)
