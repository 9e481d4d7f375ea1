"""Logs of nccl-tests and rccl-tests: one run for each test in the file, with its ranks and rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from readers.formats.nccl.rows import ROW, columns_of, looks_like_row, row_of
from readers.formats.nccl.runs import Draft, run_of
from readers.formats.nccl.verdicts import PROGRAMS
from readers.frame.facts import Member, RunFact
from readers.frame.findings import Finding, refused
from readers.frame.numbers import finite
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_PROGRAM: Final = "(" + "|".join(sorted(PROGRAMS, key=len, reverse=True)) + ")_perf"
_STARTS: Final = re.compile(rf"[# ]*Collective test starting: *{_PROGRAM}")
_ENDS: Final = re.compile(r"[# ]*Collective test concluded")
_COMMAND: Final = re.compile(rf"(?:^|[\s/=]){_PROGRAM}(?:_mpi)?(?: +-|$)")
_VERSION: Final = re.compile(r"[# ]*(nccl|rccl)-tests:? +version:? +(\S+)", re.IGNORECASE)
_SETTINGS: Final = re.compile(r"[# ]*nThread +\d")
_MOST: Final = re.compile(r"maxBytes +(\d{1,18})")
_REDUCED: Final = re.compile(r"[# ]*Reducing maxBytes to +(\d{1,18})")
_DEVICES: Final = re.compile(r"[# ]*Using devices")
_RANK: Final = re.compile(
    r"[# ]*Rank +(\d{1,7}) +(?:Group +(\d{1,7}) +)?(?:Pid +\d+ +)?on +(\S+) +device +(\d{1,4}) +\[([^\]]*)\] *(.*)"
)
_TOLD_BY_NCCL: Final = re.compile(
    r"(?:^|\s)(\S+):\d+:\d+ \[(\d{1,4})\] NCCL INFO comm \S+ rank (\d{1,7}) nranks (\d{1,7}) "
)
_AVERAGE: Final = re.compile(r"[# ]*Avg bus bandwidth *: *(\S+)")
_BOUNDS: Final = re.compile(r"[# ]*Out of bounds values *: *(\d+) *(\w*)")
_FAILURE: Final = re.compile(
    r"Test (?:NCCL|CUDA|HIP|RCCL)? ?failure|Segmentation fault|srun: error|Bus error|Killed by signal"
    r"|mpirun(?: has)? (?:noticed|detected)|MPI_ABORT was invoked|remote process exited|CANCELLED AT"
    r"|unhandled \w{1,20} error",
    re.IGNORECASE,
)
_ELIDED: Final = re.compile(r"[# ]*(?:\.\.\.+|…|\[\.\.\.\])$")
_OURS: Final = re.compile(r"[# ]*meshwright: (.*)")
_LOCAL: Final = frozenset({"localhost", "localhost.localdomain"})


@dataclass(slots=True)
class _Reader:
    """Lines in, tests out.  A test begins where a line comes that its own test had before."""

    source: Source
    drafts: list[Draft] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)
    draft: Draft = field(default_factory=Draft)
    tool: str = ""
    program: str = ""
    """Last command line, which may have run several times."""

    def take(self, line: Line) -> None:
        text = line.text
        if not text:
            return
        if ROW.match(text) is not None or (self.draft.columns is not None and text.lstrip()[:1].isdigit()):
            self._row(line)
        else:
            self._said(text.lstrip("# "))
        if self.draft.begun or self.draft.program or self.draft.ours or self.draft.tool:
            self.draft.first = self.draft.first or line.number
            self.draft.last = line.number

    def close(self) -> None:
        """End the test at hand."""
        if self.draft.begun:
            self.drafts.append(self.draft)
        self.draft = Draft()

    def refuse(self, line: Line, reason: str) -> None:
        """One more line without use; lines in a row with one reason make one refusal."""
        last = self.refusals[-1] if self.refusals else None
        if last is not None and last.sentence == reason and last.last_line + 1 == line.number:
            self.refusals[-1] = last.up_to(line.number)
            return
        self.refusals.append(refused(line, reason, "send the log as the tool printed it, or leave it out"))

    def _row(self, line: Line) -> None:
        if not looks_like_row(line.text):
            if len(line.text.split()) > 5:
                self.refuse(line, "the row does not have the columns of its table")
            return
        row = row_of(line.number, line.text, self.draft.columns)
        if self.draft.concluded:
            self.close()
        self.draft.begun = True
        if isinstance(row, str):
            self.refuse(line, row)
        else:
            self.draft.rows.append(row)

    def _said(self, text: str) -> None:
        draft = self.draft
        if _RANK.match(text) is not None:
            self._rank(text)
        elif (columns := columns_of(text)) is not None:
            self._begin_unless(not draft.rows)
            self.draft.columns = columns
            self.draft.begun = True
        elif _ENDS.match(text) is not None or _AVERAGE.match(text) is not None or _BOUNDS.match(text) is not None:
            self._end(text)
        elif (found := _OURS.match(text)) is not None:
            self._ours(found[1])
        elif not self._header(text):
            self._aside(text)

    def _header(self, text: str) -> bool:
        """Whether the line is one of those above a table that begin a test."""
        draft = self.draft
        if (found := _STARTS.match(text)) is not None:
            self._begin_unless(not draft.begun)
            self.draft.program = found[1]
        elif _SETTINGS.match(text) is not None:
            self._begin_unless(not draft.begun)
            self.draft.begun = True
            if (most := _MOST.search(text)) is not None:
                self.draft.most = int(most[1])
        elif (found := _VERSION.match(text)) is not None:
            if found[1].lower() == "nccl":
                self._begin_unless(not draft.begun)
            self.tool = self.draft.tool = f"{found[1].lower()}-tests {found[2]}"
        elif _DEVICES.match(text) is not None:
            self._begin_unless(not draft.rows and not draft.members)
        elif (found := _REDUCED.match(text)) is not None:
            draft.most = int(found[1])
        else:
            return False
        return True

    def _begin_unless(self, same: bool) -> None:
        if not same:
            self.close()

    def _rank(self, text: str) -> None:
        found = _RANK.match(text)
        if found is None:
            return
        rank = int(found[1])
        self._begin_unless(not self.draft.rows and rank not in self.draft.members)
        host = None if found[3].lower() in _LOCAL else found[3]
        self.draft.begun = True
        self.draft.groups.add(found[2] or "0")
        self.draft.members[rank] = Member(rank, host, int(found[4]), found[5], found[6].strip())

    def _end(self, text: str) -> None:
        draft = self.draft
        if not draft.begun:
            return
        draft.concluded = True
        if (average := _AVERAGE.match(text)) is not None:
            draft.average = finite(average[1])
        elif (bounds := _BOUNDS.match(text)) is not None:
            draft.failed_values = min(int(bounds[1][:9]), 10**9) if bounds[2].upper() != "OK" else 0

    def _ours(self, text: str) -> None:
        said = dict(word.partition("=")[::2] for word in text.split())
        if "exit" in said:
            self.draft.begun = self.draft.begun or bool(self.draft.ours)
            self.draft.failure = self.draft.failure or f"the test ended with exit code {said['exit'][:9]}"
            return
        self.close()
        self.draft.ours = said
        if (found := re.fullmatch(_PROGRAM, self.draft.ours.get("test", ""))) is not None:
            self.draft.program = found[1]

    def _aside(self, text: str) -> None:
        draft = self.draft
        if (told := _TOLD_BY_NCCL.search(text)) is not None:
            rank = int(told[3])
            draft.told_ranks = int(told[4])
            draft.told.setdefault(rank, Member(rank, told[1], int(told[2])))
        elif _ELIDED.match(text) is not None:
            draft.elided = draft.begun and not draft.concluded
        elif (command := _COMMAND.search(text)) is not None:
            if draft.rows:
                self.close()
            self.program = command[1]
        elif draft.failure or draft.concluded or not (draft.begun or draft.program):
            return
        elif _FAILURE.search(text) is not None:
            draft.failure = text.strip()[:200]


def read_nccl_tests(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The tests of a log.

    Figures out of place; a bus bandwidth below 0.05 GB/s has too few digits and is left unknown, its time stays.
    The test of a table without a name is told by the command, its columns or the name of the file, or refused.
    """
    facts: list[RunFact] = []
    doubts: list[Finding] = []
    refusals: list[Finding] = []
    for own in _by_teller(lines):
        reader = _Reader(source)
        for line in own:
            had = reader.draft
            reader.take(line)
            if reader.draft is not had or reader.program or reader.tool:
                reader.draft.tool = reader.draft.tool or reader.tool
                reader.draft.program = reader.draft.program or reader.program
        reader.close()
        refusals.extend(reader.refusals)
        for draft in reader.drafts:
            found = run_of(source, draft)
            if isinstance(found, Finding):
                refusals.append(found)
            else:
                facts.append(found[0])
                doubts.extend(found[1])
    if not facts and not refusals and lines:
        reason = "no test in these lines: neither a list of ranks nor a table"
        refusals.append(refused(lines[0], reason, "send the whole log", lines[-1].number))
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


def _by_teller(lines: tuple[Line, ...]) -> Sequence[Sequence[Line]]:
    """All lines; where several processes printed tables (built without MPI), those of each."""
    tellers = {line.teller for line in lines if ROW.match(line.text) is not None}
    if len(tellers) < 2:
        return (lines,)
    parted: dict[str, list[Line]] = {teller: [] for teller in sorted(tellers)}
    for line in lines:
        if line.teller in parted:
            parted[line.teller].append(line)
    return tuple(parted.values())


FORMAT: Final = Format(
    name="nccl-tests",
    known_as="nccl-tests or rccl-tests log",
    family="bandwidth",
    read=read_nccl_tests,
    begins=(
        _STARTS,
        _SETTINGS,
        _VERSION,
        _DEVICES,
        _RANK,
        _COMMAND,
        _OURS,
        re.compile(r"[# ]*(?:size|bytes) +(?:count|N) +type "),
        re.compile(r"[# ]*out-of-place +in-place"),
        ROW,
    ),
)
