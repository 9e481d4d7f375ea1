"""Recognition of the format of a text, and the reading of all its sections.

A file may hold several sections, as a paste of three commands does.  A section begins at a line that a format knows
and ends before the first line of another format.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Final

from readers.formats import other_tools, own_tables, taccl
from readers.formats.amd import amd_topo, rocm_topo
from readers.formats.infiniband import iblinkinfo, ibnet, ibstat, ibstatus, perftest
from readers.formats.kubernetes import formats as kubernetes
from readers.formats.mpi import gpcnet, mpigraph, osu
from readers.formats.nccl import graph as nccl_graph
from readers.formats.nccl import nccl_tests
from readers.formats.nccl import sweeps as nccl_sweeps
from readers.formats.nccl import topology_xml as nccl_xml
from readers.formats.network import iperf3, netq
from readers.formats.nvidia import nvbandwidth, p2p_test, smi_nvlink, smi_query, smi_topo, topograph
from readers.formats.pcie import lspci
from readers.formats.slurm import nodes as slurm_nodes
from readers.formats.slurm import topology as slurm_topology
from readers.formats.superbench import gpu_copy, pair_patterns
from readers.frame.findings import Finding, doubt, refusal
from readers.frame.lines import LONGEST_LINE, clean_lines
from readers.frame.reading import Contents, Format, Reading, Section
from readers.frame.sources import Line, Source
from readers.health import formats as health

_MOST_REFUSALS: Final = 200
_NEAREST: Final = 3
_SHOWN: Final = 120
_PROMPT: Final = re.compile(r"(?:\S{1,80}@\S{1,80}[$#>]|\[\S{1,80}@[^\]]{1,80}\][$#]|\$|root#) +\S")
_PARTS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\([^()\[\]\\]*\)")
"""Parts of a pattern that need not stand in the text literally; innermost groups first."""
_PLAIN: Final = re.compile(r"[A-Za-z_]{3,}(?![A-Za-z_]*[?*{])")
_NO_DIGITS: Final = str.maketrans("123456789", "000000000")
_DIGIT: Final = re.compile(r"(\\.|\{[\d,]+\}|0-9)|[1-9]")
"""A digit that stands in a text of a pattern; group 1 is what holds digits and is none."""
_COMBINED: Final = 64
"""Combinations of patterns that are kept: an upload has many files of few kinds."""
_WORD: Final = re.compile(r"[a-z][a-z0-9]{2,}")
_FEW: Final = frozenset(
    {"the", "and", "with", "from", "output", "file", "log", "text", "test", "show", "node", "list"}
)
_SCOPED: Final = ((re.IGNORECASE, "i"), (re.DOTALL, "s"), (re.VERBOSE, "x"), (re.ASCII, "a"))


FORMATS: Final[tuple[Format, ...]] = (
    own_tables.FORMAT,
    *nccl_sweeps.FORMATS,
    nccl_tests.FORMAT,
    p2p_test.FORMAT,
    *nvbandwidth.FORMATS,
    gpu_copy.FORMAT,
    osu.FORMAT,
    perftest.FORMAT,
    mpigraph.FORMAT,
    *iperf3.FORMATS,
    gpcnet.FORMAT,
    pair_patterns.FORMAT,
    smi_topo.FORMAT,
    smi_nvlink.FORMAT,
    *smi_query.FORMATS,
    rocm_topo.FORMAT,
    *amd_topo.FORMATS,
    nccl_graph.FORMAT,
    nccl_xml.FORMAT,
    lspci.FORMAT,
    taccl.FORMAT,
    *ibnet.FORMATS,
    iblinkinfo.FORMAT,
    ibstatus.FORMAT,
    *ibstat.FORMATS,
    *health.FORMATS,
    *netq.FORMATS,
    *slurm_topology.FORMATS,
    *slurm_nodes.FORMATS,
    *kubernetes.FORMATS,
    topograph.FORMAT,
    *other_tools.FORMATS,
)
"""In the order of precedence: where two formats know a line, the first has it."""
_TAKE_TELLERS_APART: Final = (nccl_tests.FORMAT, ibstat.FORMATS[0])
"""Readers that need the lines of all processes at once."""
_INSIDE_A_NODE: Final = frozenset({"inside a node", "gpu", smi_topo.FORMAT.family, smi_nvlink.FORMAT.family})
_HOST: Final = re.compile(r"[A-Za-z][A-Za-z0-9.\-]{0,252}")


def recognise(source: Source, formats: Sequence[Format] = FORMATS) -> tuple[Section, ...]:
    """The sections of a file, in its order; none where nothing is known."""
    return _recognise(source, clean_lines(source.text), formats)


def _recognise(source: Source, lines: Sequence[Line], formats: Sequence[Format]) -> tuple[Section, ...]:
    if source.tree is not None:
        for form in formats:
            if form.fits is not None and form.fits(source.tree):
                return (Section(form.name, 1, max(1, len(lines))),)
    sections: list[Section] = []
    latest = 0
    for index, form in _beginnings(lines, formats):
        before, latest = latest, index
        if sections and sections[-1].format == form.name:
            continue
        first = index
        while sections and first > before + 1 and _PROMPT.match(lines[first - 1].text):
            first -= 1  # the command belongs to what it printed
        if sections:
            sections[-1] = replace(sections[-1], last_line=lines[first - 1].number)
        sections.append(Section(form.name, lines[first].number if sections else 1, lines[-1].number))
    return tuple(sections)


def _beginnings(lines: Sequence[Line], formats: Sequence[Format]) -> Iterator[tuple[int, Format]]:
    """Indices of lines that begin a section, with the first format that knows each."""
    # Most lines of a long file differ in their digits only, so patterns are tried on one line of each shape first.
    shapes = "\n".join(line.text for line in lines).translate(_NO_DIGITS).split("\n")
    kinds = set(shapes)  # of no line at all: the empty one
    text = "\n".join(kinds)  # words hold no digits
    patterns = [(pattern, form) for form in formats for pattern in form.begins if _word_of(pattern) in text]
    begin = _first_of(tuple(pattern for pattern, _ in patterns))
    begin_shape = _first_of(tuple(_of_shapes(pattern) for pattern, _ in patterns))
    candidates = {shape for shape in kinds if shape and begin_shape(shape) is not None}
    for index, (line, shape) in enumerate(zip(lines, shapes, strict=False)):
        if shape in candidates and (found := begin(line.text)) is not None and found.lastgroup is not None:
            yield index, patterns[int(found.lastgroup[1:])][1]


@lru_cache(maxsize=_COMBINED)
def _first_of(patterns: tuple[re.Pattern[str], ...]) -> Callable[[str], re.Match[str] | None]:
    """The match of the first pattern that fits the start of a text, as group "p" and its place: one for all.

    Patterns of ``Format.begins`` hold neither names of groups nor references to groups.
    """
    # An empty group behind each: a group around it would hide from the engine how it begins.
    groups = (f"{_scoped(pattern)}(?P<p{place}>)" for place, pattern in enumerate(patterns))
    return re.compile("|".join(groups) or r"(?!)").match


@cache
def _word_of(pattern: re.Pattern[str]) -> str:
    """The longest word that stands in every text the pattern matches; empty where that is not plain to see."""
    left, before = pattern.pattern, ""
    while left != before:
        left, before = _PARTS.sub(" ", left), left
    if pattern.flags & re.IGNORECASE or set("|()[]") & set(left):
        return ""
    return max(_PLAIN.findall(left), key=len, default="")


@cache
def _of_shapes(pattern: re.Pattern[str]) -> re.Pattern[str]:
    """A pattern that fits the shape (every digit a 0) of each text that ``pattern`` fits."""
    return re.compile(_DIGIT.sub(lambda found: found[1] or "0", pattern.pattern), pattern.flags)


def _scoped(pattern: re.Pattern[str]) -> str:
    """The pattern with its flags, as a part of a larger one."""
    flags = "".join(letter for flag, letter in _SCOPED if pattern.flags & flag)
    return f"(?{flags}:{pattern.pattern})"


def read(source: Source, formats: Sequence[Format] = FORMATS) -> Reading:
    """Read a file in the known formats; where none fits, the result is a refusal that names the nearest."""
    lines = clean_lines(source.text)
    unreadable = _not_readable(source)
    sections = () if unreadable else _recognise(source, lines, formats)
    if not sections:
        return Reading(
            source.name, len(lines), (), _in_file([unreadable or _unknown(source, lines, formats)], source)
        )
    by_name = {form.name: form for form in formats}
    numbers = [line.number for line in lines]
    understood: list[tuple[Section, Contents]] = []
    for section in sections:
        first, after = bisect_left(numbers, section.first_line), bisect_left(numbers, section.last_line + 1)
        form = by_name[section.format]
        found = _checked(form, section, _of_each_teller(form, source, lines[first:after]))
        refusals, doubts = _in_file(found.refusals, source), _in_file(found.doubts, source)
        understood.append((section, Contents(found.facts, refusals, doubts)))
    return Reading(source.name, len(lines), tuple(understood), _in_file(_cut_lines(source), source))


def _in_file(findings: Iterable[Finding], source: Source) -> tuple[Finding, ...]:
    return tuple(finding.in_file(source.name) for finding in findings)


def _of_each_teller(form: Format, source: Source, lines: tuple[Line, ...]) -> Contents:
    """Read a section; where several processes printed the same tool's output, that of each by itself.

    Their lines may be mixed.  A process that a launcher names by its host speaks of that host.
    """
    tellers = dict.fromkeys(line.teller for line in lines if line.teller)
    if form in _TAKE_TELLERS_APART or not tellers:
        return form.read(source, lines)
    own = {
        line.teller
        for line in lines
        if line.teller and any(pattern.match(line.text) is not None for pattern in form.begins)
    }
    named = all(_HOST.fullmatch(teller) is not None for teller in tellers)
    if len(own) < 2 and not (named and len(tellers) == 1):
        return form.read(source, lines)
    parts = []
    for teller in tellers:
        if teller in own or named:
            host = teller if named else None
            parts.append(
                form.read(replace(source, host=host), tuple(line for line in lines if line.teller == teller))
            )
    doubts = [doubt for part in parts for doubt in part.doubts]
    if not named and form.family in _INSIDE_A_NODE:
        sentence = f"{len(parts)} processes printed each its own output, and none says on which host it ran"
        doubts.append(doubt("several-hosts", lines[0].number, sentence, "send one file for each host"))
    return Contents(
        tuple(fact for part in parts for fact in part.facts),
        tuple(refusal for part in parts for refusal in part.refusals),
        tuple(doubts),
    )


def _checked(form: Format, section: Section, found: Contents) -> Contents:
    """``found`` with the refusal of a kind that is known only to be refused, and no more refusals than are read."""
    refusals = found.refusals
    if form.refused_because and not refusals and not found.facts:
        refusals = (refusal(section.first_line, section.last_line, form.refused_because, "send another file"),)
    if (more := len(refusals) - _MOST_REFUSALS) > 0:
        last = refusals[-1]
        rest = refusal(
            refusals[_MOST_REFUSALS].first_line,
            last.last_line,
            f"{more} more places were not taken",
            "see the reasons above",
        )
        refusals = (*refusals[:_MOST_REFUSALS], rest)
    return replace(found, refusals=refusals)


def _not_readable(source: Source) -> Finding | None:
    if not source.text.strip():
        return refusal(1, 1, "the file is empty", "save the tool's output again: it may have gone to stderr")
    if "\0" in source.text:
        return refusal(1, 1, "is not text: it holds NUL characters", "save the tool's output as text in UTF-8")
    return None


def _cut_lines(source: Source) -> Iterator[Finding]:
    if source.tree is not None or len(source.text) <= LONGEST_LINE:
        return
    for number, text in enumerate(source.text.split("\n"), start=1):
        if len(text) > LONGEST_LINE:
            reason = (
                f"the line has {len(text):,} characters; what is behind the first {LONGEST_LINE:,} was not read"
            )
            yield refusal(number, number, reason, "break the line, or send fewer columns", text[:_SHOWN])


def _unknown(source: Source, lines: Sequence[Line], formats: Sequence[Format]) -> Finding:
    """The refusal of a file that no format knows, with those whose words it shares most."""
    head = " ".join([source.name, *(line.text for line in lines[:200])]).casefold()
    words = set(_WORD.findall(head.replace("_", " ")))
    rated = sorted(
        ((len(words & _words(form)), -place) for place, form in enumerate(formats) if not form.refused_because),
        reverse=True,
    )
    near = [formats[-place].known_as for shared, place in rated[:_NEAREST] if shared]
    shown = next((line.text for line in lines if line.text), "")[:_SHOWN]
    kinds = f"the nearest that are known: {'; '.join(near)}. " if near else ""
    return refusal(
        1,
        max(1, len(lines)),
        "nothing in the file is the output of a tool that is known",
        f"{kinds}Send the whole output with its first lines; meshwright import-formats lists all kinds",
        shown,
    )


def _words(form: Format) -> set[str]:
    return set(_WORD.findall(f"{form.name} {form.known_as}".casefold().replace("_", " "))) - _FEW
