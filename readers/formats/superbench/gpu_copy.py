"""SuperBench's gpu_copy_bw: one line a copy, as "gpu0_to_gpu1_write_by_sm_under_numa0_uni 250.1", in 10^9 bytes/s.

"a_to_b" is from a to b, whether a writes or b reads.  Figures of "_bi" are the sum of both ways.  A copy of a GPU
to itself is its own memory and is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from cluster_models.cluster.measurements import Direction
from readers.formats.gpu_matrices import GIGA, MOST_DEVICES, both_directions
from readers.frame.facts import MatrixFact, Memory, Origin, Quantity
from readers.frame.figures import figure as figure_of
from readers.frame.findings import Finding, refused
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

TOOL: Final = "gpu_copy_bw"
_COPY: Final = re.compile(
    r"^\s*(?:gpu[-_]copy[-_]bw[\w:-]{0,40}/)?(cpu|gpu\d{1,4})_to_(cpu|gpu\d{1,4})(?:_(read|write))?_by_(sm|dma)"
    r"(?:_under_numa(\d{1,3}))?(?:_(uni|bi))?\b(?::\d{1,3})?[\s:,]{1,8}(\S{1,40})\s*$"
)
_MANY: Final = re.compile(r"^\s*gpu_all_to_gpu_all_|\s*gpu\d{1,4}_to_gpu_all_|\s*gpu_all_to_gpu\d{1,4}_")


@dataclass(slots=True)
class _Cells:
    """The copies of one kind: from device, to device, figure and the line that it stands on."""

    figures: dict[tuple[str, str], tuple[float, int]] = field(default_factory=dict)
    first_line: int = 0


_Kind = tuple[str, str, str, str, bool]
"""Kinds of the two ends, method, NUMA node, and whether both ways ran."""


def read_gpu_copy(source: Source, lines: tuple[Line, ...]) -> Contents:
    """One table for each engine, way, NUMA node and direction; copies with the host as tables of host memory."""
    kinds: dict[_Kind, _Cells] = {}
    refusals: list[Finding] = []
    for line in lines:
        found = _COPY.match(line.text)
        if found is not None:
            problem = _take(found, line, kinds)
        else:
            problem = "totals of one GPU against many: of no pair" if _MANY.match(line.text) else ""
        if problem:
            refusals.append(refused(line, problem, "send the copies of single pairs"))
    facts = [_matrix(source, kind, cells) for kind, cells in kinds.items()]
    return Contents(tuple(facts), tuple(refusals), both_directions(facts))


def _take(found: re.Match[str], line: Line, kinds: dict[_Kind, _Cells]) -> str:
    """Puts a copy into the table of its kind; what is wrong with it, else nothing."""
    start, end, how, engine, numa, ways, figure = found.groups()
    value = figure_of(figure)
    if value is None or value <= 0:
        return f"{figure!r} is not a bandwidth"
    start, end = _device(start), _device(end)
    if start == end:
        return ""
    method = " ".join(part for part in ("sm" if engine == "sm" else "copy engine", how) if part)
    kind = (start[:3], end[:3], method, numa or "", ways == "bi")
    cells = kinds.setdefault(kind, _Cells(first_line=line.number))
    cells.figures.setdefault((start, end), (value, line.number))
    return ""


def _device(name: str) -> str:
    """The one spelling of a device."""
    return name if name == "cpu" else f"gpu{int(name[3:])}"


def _matrix(source: Source, kind: _Kind, cells: _Cells) -> MatrixFact:
    start, end, method, numa, both = kind
    gpus = sorted(
        {name for pair in cells.figures for name in pair if name != "cpu"}, key=lambda name: int(name[3:])
    )
    gpus = gpus[:MOST_DEVICES]
    rows, columns = (["cpu"] if side == "cpu" else gpus for side in (start, end))
    numbers = {pair[0]: number for pair, (_, number) in reversed(cells.figures.items())}
    return MatrixFact(
        Origin(source.name, cells.first_line, max(number for _, number in cells.figures.values())),
        TOOL,
        "gpus",
        source.host,
        tuple(map(_label, rows)),
        tuple(map(_label, columns)),
        {},
        Quantity.BANDWIDTH,
        tuple(tuple(_value(cells, row, column) for column in columns) for row in rows),
        tuple(numbers.get(row, cells.first_line) for row in rows),
        Direction.BOTH if both else Direction.FORWARD,
        memory=Memory.HOST if "cpu" in (start, end) else Memory.GPU,
        method=method + (f", numa {numa}" if numa else "") + (", bidirectional" if both else ""),
    )


def _label(name: str) -> str:
    return "cpu0" if name == "cpu" else str(int(name[3:]))


def _value(cells: _Cells, row: str, column: str) -> float | None:
    figure = cells.figures.get((row, column))
    return None if figure is None else figure[0] * GIGA


FORMAT: Final = Format(
    name="gpu-copy",
    known_as="SuperBench gpu_copy_bw",
    family="gpu",
    read=read_gpu_copy,
    begins=(_COPY,),
)
