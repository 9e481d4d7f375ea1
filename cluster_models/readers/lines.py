"""Lines as a tool printed them: without the prefixes, colours and line ends that launchers and terminals add."""

from __future__ import annotations

import re
from typing import Final

from cluster_models.readers.reading import Line

_ESCAPES: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")
_TELLERS: Final = (
    re.compile(r"^\[(\d+,\d+)\]<(?:stdout|stderr)>: ?"),
    re.compile(r"^\[(pod/[^\]\s]+)\] ?"),
    re.compile(r"^ *(\d{1,6}): "),
)
"""Of ``mpirun --tag-output``, ``kubectl logs --prefix`` and ``srun --label``."""
_MOMENT: Final = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) ")
LONGEST_LINE: Final = 10_000
"""Characters of a line that are looked at: no tool prints longer ones, and patterns stay fast."""


def clean_lines(text: str) -> tuple[Line, ...]:
    """The lines of a file, numbered from 1; a carriage return inside a line restarts it, as on a terminal."""
    text = text.removeprefix("\ufeff")
    raw = text.replace("\r\n", "\n").split("\n")
    if raw and not raw[-1]:
        raw.pop()
    return tuple(_clean(number, line) for number, line in enumerate(raw, start=1))


def _clean(number: int, raw: str) -> Line:
    line = raw[:LONGEST_LINE]
    if "\x1b" in line:
        line = _ESCAPES.sub("", line)
    if "\r" in line:
        line = line.rstrip("\r").rpartition("\r")[2]
    teller = ""
    if line[:1] in "[0123456789 ":
        line = _MOMENT.sub("", line, count=1)
        for pattern in _TELLERS:
            found = pattern.match(line)
            if found is not None:
                teller, line = found.group(1), line[found.end() :]
                break
    return Line(number, line.rstrip(), teller)
