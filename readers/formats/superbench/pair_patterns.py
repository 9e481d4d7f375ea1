"""Lists of the pairs that SuperBench is going to test: a plan of measurements, without a result."""

from __future__ import annotations

import re
from typing import Final

from readers.frame.findings import refused
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_BECAUSE: Final = "lists the pairs that a test runs on, and no result"
_REMEDY: Final = "send the output of the test that ran on these pairs"


def _read(_source: Source, lines: tuple[Line, ...]) -> Contents:
    if not lines:
        return Contents()
    return Contents(refusals=(refused(lines[0], _BECAUSE, _REMEDY, lines[-1].number),))


FORMAT: Final = Format(
    name="mpi-pattern",
    known_as="SuperBench list of pairs to test",
    family="pairs",
    read=_read,
    begins=(re.compile(r"^benchmark_name: .{0,200}\bpattern_type: "),),
    refused_because=_BECAUSE,
)
