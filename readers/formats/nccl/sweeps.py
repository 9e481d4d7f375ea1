"""Files of sweeps over pairs of nodes, besides their logs: a table with a row for each test, a list of failures.

The table has the columns ``file,test,N,G,nodes,minBytes,maxBytes,avg_bus_bw_GBs,peak_busbw_GBs``: N nodes with G
GPUs each; the list names file, program, N, G and nodes of each test that left no figures.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from typing import Final

from readers.formats.nccl.verdicts import PROGRAMS
from readers.frame.facts import Origin, Point, RunEnd, RunFact
from readers.frame.findings import Finding, doubt, note, refused
from readers.frame.host_lists import expand
from readers.frame.numbers import finite
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_HEADER: Final = re.compile(
    r"(?=\w+,)(?=.{0,400}\btest\b)(?=.{0,400}\bnodes\b)(?=.{0,400}\bpeak_busbw_GBs\b)\w+(?:,\w+){4,}"
)
_FAILED: Final = re.compile(r" *- +(\S+): +(\w{1,40})_perf \(N=(\d{1,6}), *G=(\d{1,6}), *nodes=(\S{1,9999})\)")
_COUNTED: Final = re.compile(r" *- +FAIL: +(\d{1,9})$")
_TITLE: Final = re.compile(r"FAILURE SUMMARY$")
_LISTED: Final = re.compile(r"Failed tests \(no bandwidth data\):")
_UNSTEADY: Final = 0.7
_STEADY_FROM_BYTES: Final = 1 << 20
_RESEND: Final = "send the table as the sweep wrote it, or its logs"


def read_sweep_table(source: Source, lines: tuple[Line, ...]) -> Contents:
    """One run for each row, with its peak bus bandwidth as the figure of the largest size.

    The table does not say at which size the peak was, nor whether in or out of place: a doubt says so once.
    """
    facts: list[RunFact] = []
    refusals: list[Finding] = []
    doubts: list[Finding] = []
    names: list[str] = []
    for line in lines:
        if not line.text.strip():
            continue
        if _HEADER.match(line.text) is not None:
            names = _cells(line.text)
            continue
        cells = _cells(line.text)
        if not names or len(cells) != len(names):
            reason = f"the row has {len(cells)} cells where the header names {len(names)}"
            refusals.append(refused(line, reason, _RESEND))
            continue
        found = _row(source, line, dict(zip(names, cells, strict=True)))
        if isinstance(found, str):
            refusals.append(refused(line, found, _RESEND))
            continue
        facts.append(found)
        if (doubt := _unsteady(found, dict(zip(names, cells, strict=True)))) is not None:
            doubts.append(doubt)
    if facts:
        sentence = "the table has only peaks: they are taken as the figures of the largest size, out of place"
        doubts.insert(0, note("size-assumed", facts[0].origin.first_line, sentence, "send the logs too"))
    elif not refusals and lines:
        refusals.append(refused(lines[0], "the table has no rows", _RESEND))
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


def read_failures(source: Source, lines: tuple[Line, ...]) -> Contents:
    """One failed run for each test listed; the list of pairs above it says the same again."""
    facts: list[RunFact] = []
    refusals: list[Finding] = []
    counted: tuple[int, int] | None = None
    for line in lines:
        if (count := _COUNTED.match(line.text)) is not None:
            counted = int(count[1]), line.number
        if (found := _FAILED.match(line.text)) is None:
            continue
        row = {"test": f"{found[2]}_perf", "N": found[3], "G": found[4], "nodes": found[5]}
        fact = _row(source, line, row)
        if isinstance(fact, str):
            refusals.append(refused(line, fact, _RESEND))
        else:
            facts.append(fact)
    doubts = []
    if counted is not None and counted[0] != len(facts) + len(refusals):
        sentence = f"{counted[0]} tests failed, {len(facts) + len(refusals)} are listed"
        doubts.append(note("partial", counted[1], sentence))
    if not facts and not refusals and lines:
        refusals.append(refused(lines[0], "the list names no failed test", _RESEND))
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


def _cells(text: str) -> list[str]:
    """The cells of a row; quotes that do not close are text."""
    return [cell.strip() for cell in next(csv.reader([text]), [])]


def _row(source: Source, line: Line, row: Mapping[str, str]) -> RunFact | str:
    """The run of a row, or what is wrong with it; no peak at all is a failed test."""
    operation = PROGRAMS.get(row.get("test", "").removesuffix("_perf"))
    nodes, gpus = int(finite(row.get("N", "")) or 0), int(finite(row.get("G", "")) or 0)
    if operation is None:
        return f"{row.get('test', '')[:40]!r} is not a program of nccl-tests"
    if (
        nodes is None
        or gpus is None
        or not (nodes >= 1 and gpus >= 1 and nodes == nodes // 1 and gpus == gpus // 1)
    ):
        return "N and G are not whole numbers from 1 on"
    try:
        hosts = expand(row.get("nodes", ""))
    except ValueError as error:
        return f"the nodes cannot be read: {error}"
    if len(set(hosts)) != nodes:
        return f"{len(set(hosts))} nodes are named, N says {nodes}"
    text = row.get("peak_busbw_GBs", "")
    peak, largest = finite(text), finite(row.get("maxBytes", ""))
    if (text and peak is None) or (peak is not None and peak <= 0):
        return f"the bandwidth {text[:40]!r} is not a positive number: what was not measured is empty, never 0"
    average = finite(row.get("avg_bus_bw_GBs", ""))
    return RunFact(
        origin=Origin(source.name, line.number, line.number),
        tool="nccl-tests",
        operation=operation,
        members=(),
        ranks=nodes * gpus,
        hosts=hosts,
        points=() if peak is None else (Point(line.number, largest, peak * 1e9),),
        end=RunEnd.FAILED if peak is None else RunEnd.COMPLETE,
        end_reason="the sweep lists it as failed" if peak is None else "",
        nodes=nodes,
        ranks_per_node=gpus,
        stated_average_bytes_per_s=None if average is None else round(average * 1e9, 3),
    )


def _unsteady(fact: RunFact, row: Mapping[str, str]) -> Finding | None:
    """Large messages whose mean is far below their peak."""
    peak = fact.points[0].bytes_per_s if fact.points else None
    average, smallest = fact.stated_average_bytes_per_s, finite(row.get("minBytes", ""))
    if peak is None or average is None or smallest is None or smallest < _STEADY_FROM_BYTES:
        return None
    if average >= _UNSTEADY * peak:
        return None
    sentence = f"the mean over all sizes is {average / 1e9:.4g} GB/s, the peak {peak / 1e9:.4g} GB/s"
    line = fact.origin.first_line
    return doubt("unstable", line, sentence, "measure this pair again, or send its log")


FORMATS: Final = (
    Format(
        name="nccl-sweep-table",
        known_as="table of a sweep with nccl-tests (CSV)",
        family="bandwidth",
        read=read_sweep_table,
        begins=(_HEADER,),
    ),
    Format(
        name="nccl-sweep-failures",
        known_as="list of failed pairs of a sweep with nccl-tests",
        family="bandwidth",
        read=read_failures,
        begins=(_TITLE, _LISTED, _FAILED),
    ),
)
