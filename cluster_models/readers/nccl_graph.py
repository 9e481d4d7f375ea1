"""NCCL graph files (``NCCL_GRAPH_DUMP_FILE``): the rings and trees that NCCL chose; refused, with what they say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cluster_models.readers.reading import Doubt, Format, Line, Refusal, Source, Trust, Understood
from cluster_models.readers.xml_events import read_document

_START: Final = re.compile(r"<(?:graphs\b|\?xml\b|!DOCTYPE\b|!ENTITY\b)")
_ANCHOR: Final = re.compile(r"^\s*(?:<[!?].*>|-->)?\s*<graphs[\s>]")
REASON: Final = "a graph file holds the rings and trees that NCCL chose, which is no measurement"
_REMEDY: Final = "send the topology instead (NCCL_TOPO_DUMP_FILE), and nccl-tests for bandwidth"


def read(_: Source, lines: tuple[Line, ...]) -> Understood:
    """A refusal for each file, and a note with the speeds that NCCL assumed."""
    refusals: list[Refusal] = []
    doubts: list[Doubt] = []
    index = 0
    while index < len(lines):
        found = _START.search(lines[index].text)
        if found is None:
            index += 1
            continue
        graphs: list[str] = []

        def opened(name: str, attributes: Mapping[str, str], _line: int, graphs: list[str] = graphs) -> None:
            if name == "graph" and len(graphs) < 8:
                words = [
                    f"{key} {attributes[key][:12]}"
                    for key in ("nchannels", "speedintra", "speedinter", "typeintra", "typeinter")
                    if key in attributes
                ]
                graphs.append(" ".join(words))

        first = lines[index].number
        outcome = read_document(lines, index, opened, lambda _name: None, offset=found.start())
        index = outcome.rest
        reason = f"{REASON}; and {outcome.problem}" if outcome.problem else REASON
        refusals.append(Refusal(first, outcome.last_line, reason, _REMEDY))
        if graphs:
            sentence = f"NCCL assumed, in GB/s per channel: {'; '.join(graphs)}"
            doubts.append(Doubt("nccl-graph", Trust.NOTE, first, sentence))
    return Understood((), tuple(refusals), tuple(doubts))


FORMAT: Final = Format(
    name="nccl-graph",
    known_as="NCCL graph XML",
    family="inside a node",
    read=read,
    begins=(_ANCHOR,),
    refused_because=REASON,
)
