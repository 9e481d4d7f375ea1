"""Lines of a CSV table, with every problem named by its lines and column."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from app.documents.reading import FieldProblem, InvalidDocument, close_name
from app.documents.text import MAX_TEXT_BYTES
from app.presentation.figures import spans
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import GpuKind
from cluster_models.errors import InvalidInput

T = TypeVar("T")

_NUMBER: Final = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_FIGURES: Final = re.compile(r"\d[\d.,]*")
_LONGEST_CELL: Final = 200
_LARGEST: Final = 1e15
_NAMED: Final = 6
"""Spans of lines, and values, that one problem names; the others are counted."""


@dataclass(slots=True)
class Line:
    """One line; reading a cell that is wrong notes the problem and gives ``None``.

    The fields of ``problems`` are places in the line: ``problems_of_lines`` puts the line's number before them.
    """

    number: int
    cells: Mapping[str, str]
    problems: list[FieldProblem] = field(default_factory=list)

    def problem(self, column: str, problem: str, remedy: str = "") -> None:
        """Note what is wrong with a cell."""
        value = self.cells.get(column, "")
        self.problems.append(FieldProblem(f", column {column}", value, problem, remedy))

    def text(self, column: str, *, required: str = "") -> str:
        """The cell; ``required`` is what to do where it is empty and must not be."""
        cell = self.cells.get(column, "")
        if not cell and required:
            self.problem(column, "is missing", required)
        if len(cell) > _LONGEST_CELL:
            self.problem(column, f"is longer than {_LONGEST_CELL} characters")
            return ""
        return cell

    def number_in(self, column: str, *, required: str = "", zero: bool = False) -> float | None:
        """The cell as a number above 0, or from 0 on."""
        cell = self.text(column, required=required)
        if not cell:
            return None
        found = float(cell) if _NUMBER.fullmatch(cell) else math.nan
        if not math.isfinite(found):
            self.problem(column, "is not a number", "write it plainly, with a point: 12.5")
        elif found < 0 or (found == 0 and not zero):
            self.problem(column, "must not be negative" if zero else "must be greater than 0")
        elif found > _LARGEST:
            self.problem(column, f"is more than {_LARGEST:g}")
        else:
            return found
        return None

    def whole(self, column: str, *, required: str = "", most: int, zero: bool = False) -> int | None:
        """The cell as a whole number from 1 (or 0) to ``most``."""
        found = self.number_in(column, required=required, zero=zero)
        if found is None:
            return None
        if found != int(found) or found > most:
            self.problem(column, "must be a whole number" if found != int(found) else f"must be at most {most}")
            return None
        return int(found)

    def choice(self, column: str, choices: Mapping[str, T], *, required: str = "") -> T | None:
        """The choice that the cell names, in upper or lower case."""
        cell = self.text(column, required=required).lower()
        if not cell:
            return None
        if cell not in choices:
            self.problem(column, f"must be one of {', '.join(name for name in choices if name)}")
            return None
        return choices[cell]

    def named(self, column: str, find: Callable[[str], T], *, required: str = "") -> T | None:
        """The thing that ``find`` knows by the name in the cell; notes what it says of an unknown name."""
        name = self.text(column, required=required)
        try:
            return find(name) if name else None
        except InvalidInput as error:
            self.problem(column, error.problem, error.remedy)
            return None

    def gpu(self) -> GpuKind | None:
        """The GPU kind of column ``gpu``."""
        return self.named("gpu", gpu_kind, required="name a GPU kind of the catalogue, like H100-SXM5-80GB")


def problems_of_lines(lines: Iterable[Line]) -> list[FieldProblem]:
    """Problems of all lines, in their order; problems of several lines that differ in figures are one."""
    alike: dict[tuple[str, str, str], list[tuple[int, FieldProblem]]] = {}
    for line in lines:
        for each in line.problems:
            key = (each.field, _FIGURES.sub("0", each.problem), each.remedy)
            alike.setdefault(key, []).append((line.number, each))
    return [_as_one(met) for met in alike.values()]


def _as_one(met: Sequence[tuple[int, FieldProblem]]) -> FieldProblem:
    """Problems of a kind in the words of the first."""
    (number, first), *others = met
    differ = any(each.problem != first.problem for _, each in others)
    values = {str(each.value): each.value for _, each in met}
    return replace(
        first,
        field=f"{_named(number for number, _ in met)}{first.field}",
        value=first.value if len(values) == 1 else [*list(values)[:_NAMED], *["..."] * (len(values) > _NAMED)],
        problem=f"{first.problem}, in line {number}" if differ else first.problem,
    )


def _named(numbers: Iterable[int]) -> str:
    """Lines by number: "line 4", "lines 2-61, 70", "lines 2, 4, 6, 8, 10, 12 and 3 more"."""
    alone = sorted(set(numbers))
    every = spans(alone, dash="-").split(", ")
    if len(every) <= _NAMED:
        return f"line{'s' if len(alone) > 1 else ''} {', '.join(every)}"
    last = int(every[_NAMED - 1].rpartition("-")[2])
    return f"lines {', '.join(every[:_NAMED])} and {sum(number > last for number in alone)} more"


def read_lines(
    text: str, *, known: Sequence[str], required: Collection[str], most: int, what: str
) -> Iterator[Line]:
    """The lines of a CSV text below its head; raises ``InvalidInput`` or ``InvalidDocument``.

    Columns are named in the first line, in any order; ``known`` are those there are, ``required`` those there must
    be.  Empty lines are skipped.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise InvalidInput(what, f"{len(text)} characters", "is too large", "split the table")
    if "\0" in text:
        raise InvalidInput(what, "\0", "holds a NUL character: this is not a text file", "save it as CSV")
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=None), strict=True)
    try:
        head = [cell.strip().lower() for cell in next(reader, [])]
        _check_head(head, known, required, what)
        count = 0
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            count += 1
            if count > most:
                raise InvalidInput(
                    what, count, f"has more than {most} lines", "give fewer runs, or the newest ones"
                )
            if len(cells) > len(head):
                problem = f"has {len(cells)} cells, the head {len(head)}"
                raise InvalidInput(
                    f"line {reader.line_num}", cells[-1][:60], problem, "put texts with commas in quotes"
                )
            yield Line(reader.line_num, dict(zip(head, (cell.strip() for cell in cells), strict=False)))
    except csv.Error as error:
        raise InvalidInput(f"line {reader.line_num}", "", f"is not CSV: {error}", "check its quotes") from error


def _check_head(head: Sequence[str], known: Sequence[str], required: Collection[str], what: str) -> None:
    if not any(head):
        raise InvalidInput(what, "", "is empty", f"the first line names the columns: {', '.join(required)}, ...")
    if len(head) == 1 and any(mark in head[0] for mark in ";\t"):
        raise InvalidInput("line 1", head[0][:60], "has one column", "separate columns by commas")
    problems = [
        FieldProblem(f"line 1, column {index + 1}", name, "unknown column", close_name(name, known))
        for index, name in enumerate(head)
        if name not in known
    ]
    twice = sorted({name for name in head if head.count(name) > 1})
    problems += [FieldProblem("line 1", name, "the column is there twice", "remove one") for name in twice]
    missing = [name for name in required if name not in head]
    problems += [FieldProblem("line 1", name, "the column is missing", "add it") for name in missing]
    if problems:
        raise InvalidDocument(problems)
