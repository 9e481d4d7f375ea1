"""Rows of the tables of nccl-tests and rccl-tests, in the column layouts of all their versions.

A row is ``size count type [redop] [root] time algbw busbw [wrong] time algbw busbw [wrong]``: the first group of
figures is out of place, the second in place.  Which of the optional columns there are, the header says; without a
header, the row itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from readers.frame.numbers import finite, whole

_TYPE_BYTES: Final = {
    **dict.fromkeys(("int8", "uint8", "char", "uchar", "fp8_e4m3", "fp8_e5m2", "f8e4m3", "f8e5m2"), 1),
    **dict.fromkeys(("half", "float16", "fp16", "bfloat16", "bf16"), 2),
    **dict.fromkeys(("int", "int32", "uint32", "uint", "float", "float32"), 4),
    **dict.fromkeys(("double", "float64", "int64", "uint64"), 8),
}
ROW: Final = re.compile(r" *\d+ +\d+ +(?:" + "|".join(sorted(_TYPE_BYTES, key=len, reverse=True)) + r")(?: |$)")
"""First cells of every row."""
_WRONG_WORDS: Final = frozenset({"#wrong", "wrong", "error", "res"})
_UNTESTED: Final = frozenset({"N/A", "n/a"})
_GROUP: Final = 3
"""Figures of a group: time, algorithm bandwidth, bus bandwidth."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns that the header of a table names."""

    has_root: bool
    has_wrong: bool
    counts_wrong: bool
    """The column counts wrong values; the ``error`` of old versions is a difference."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row.  Bandwidths in GB/s, as printed; ``in_place`` is the bus bandwidth, where readable."""

    line: int
    size_bytes: int
    count: int
    type_bytes: int
    reduction: str
    """"" and "none" where nothing is reduced."""
    root: int | None
    time_s: float
    algorithm: float
    bus: float
    in_place: float | None
    wrong: int

    @property
    def is_consistent(self) -> bool:
        """Whether size over time gives the bandwidth printed, up to the two and four digits that are printed."""
        if not self.time_s:
            return False
        from_time = self.size_bytes / self.time_s / 1e9
        return abs(from_time - self.algorithm) <= 0.011 + 0.01 * max(from_time, self.algorithm)


def columns_of(text: str) -> Columns | None:
    """The columns of a header line; ``None`` where the line is none."""
    words = text.lstrip("# ").split()
    if not words or words[0] not in {"size", "bytes"} or "busbw" not in words or "time" not in words:
        return None
    return Columns(
        has_root="root" in words,
        has_wrong=not _WRONG_WORDS.isdisjoint(words),
        counts_wrong="#wrong" in words or "wrong" in words,
    )


def looks_like_row(text: str) -> bool:
    """Whether a line begins as a row does."""
    return ROW.match(text) is not None


def row_of(number: int, text: str, columns: Columns | None) -> Row | str:
    """The row of a line, or what is wrong with it."""
    words = text.split()
    size, count, kind = words[0], words[1], words[2]
    if len(size) > 18 or len(count) > 18:
        return "the size is beyond all memory"
    rest = words[3:]
    reduction = rest.pop(0) if rest and rest[0][:1].isalpha() and rest[0] not in _UNTESTED else ""
    root = None
    if rest and _has_root(rest, columns):
        root = _whole(rest.pop(0))
    figures = [finite(word) for word in rest[:_GROUP]]
    has_wrong = columns is None or columns.has_wrong
    if len(figures) < _GROUP or (has_wrong and len(rest) == _GROUP):
        return "the row is cut off"
    time_us, algorithm, bus = figures
    if time_us is None or algorithm is None or bus is None:
        return "a figure is not a number"
    if time_us <= 0 or algorithm < 0 or bus < 0:
        return "a figure is not positive"
    second = rest[_GROUP + 1 :] if has_wrong else rest[_GROUP:]
    counts_wrong = columns is not None and columns.counts_wrong
    return Row(
        line=number,
        size_bytes=int(size),
        count=int(count),
        type_bytes=_TYPE_BYTES[kind],
        reduction=reduction,
        root=root,
        time_s=time_us * 1e-6,
        algorithm=algorithm,
        bus=bus,
        in_place=finite(second[2]) if len(second) >= _GROUP else None,
        wrong=(_whole(rest[_GROUP]) or 0) if counts_wrong else 0,
    )


def _has_root(rest: Sequence[str], columns: Columns | None) -> bool:
    """Whether the first word after type and reduction is the root: the header says so, else the count of words.

    Two groups of four figures make eight words, one group four; one more is the root.
    """
    if columns is not None:
        return columns.has_root
    return rest[0] == "-1" or (len(rest) in {5, 9} and _whole(rest[0]) is not None)


def _whole(text: str) -> int | None:
    return None if whole(text.removeprefix("-"), 18) is None else int(text)
