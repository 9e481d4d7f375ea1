"""NCCL graph files (``NCCL_GRAPH_DUMP_FILE``): the rings and trees that NCCL chose; refused, with what they say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from readers.frame.findings import Finding, note, refusal
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source
from readers.frame.xml_events import documents

_START: Final = re.compile(r"<(?:graphs\b|\?xml\b|!DOCTYPE\b|!ENTITY\b)")
_ANCHOR: Final = re.compile(r"^\s*(?:<[!?].*>|-->)?\s*<graphs[\s>]")
REASON: Final = "a graph file holds the rings and trees that NCCL chose, which is not a measurement"
_REMEDY: Final = "send the topology instead (NCCL_TOPO_DUMP_FILE), and nccl-tests for bandwidth"


class _Graphs:
    """Channels of the first graphs of a file."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def opened(self, name: str, attributes: Mapping[str, str], _line: int) -> None:
        if name == "graph" and len(self.said) < 8:
            keys = ("nchannels", "speedintra", "speedinter", "typeintra", "typeinter")
            self.said.append(" ".join(f"{key} {attributes[key][:12]}" for key in keys if key in attributes))

    def closed(self, _name: str) -> None:
        """The file's ends say nothing."""


def read(_: Source, lines: tuple[Line, ...]) -> Contents:
    """A refusal for each file, and a note with the speeds that NCCL assumed."""
    refusals: list[Finding] = []
    doubts: list[Finding] = []
    for first, graphs, outcome in documents(lines, _START, _Graphs):
        reason = f"{REASON}; and {outcome.problem}" if outcome.problem else REASON
        refusals.append(refusal(first, outcome.last_line, reason, _REMEDY))
        if graphs.said:
            sentence = f"NCCL assumed, in GB/s per channel: {'; '.join(graphs.said)}"
            doubts.append(note("nccl-graph", first, sentence))
    return Contents((), tuple(refusals), tuple(doubts))


FORMAT: Final = Format(
    name="nccl-graph",
    known_as="NCCL graph XML",
    family="inside a node",
    read=read,
    begins=(_ANCHOR,),
    refused_because=REASON,
)
