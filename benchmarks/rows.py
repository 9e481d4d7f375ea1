"""Cells of a table of measured steps, and what the reader fills in where they are empty."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")
Row = Mapping[str, str]

LARGEST: Final = 1e12
"""No figure of a run is larger in the units of the table."""


class Skipped(Exception):
    """The row cannot be priced; the message is the reason that the report counts."""


class Assumed:
    """Collects what a row leaves open and what was taken for it, in words."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def take(self, what: str, value: T, why: str = "") -> T:
        """``value``, noted as an assumption about ``what``."""
        self.notes.append(f"{what} {value}" + (f" ({why})" if why else ""))
        return value


def read_rows(path: Path) -> list[Row]:
    """All rows of a table; columns that it lacks read as empty."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rows_of(paths: Iterable[Path]) -> list[Row]:
    """The rows of several tables, one after the other."""
    return [row for path in paths for row in read_rows(path)]


def text(row: Row, column: str) -> str:
    """The cell without blanks around it; empty where the column is missing."""
    return (row.get(column) or "").strip()


def whole(row: Row, column: str) -> int | None:
    """The cell as a whole number above 0, ``None`` where it is empty; raises ``Skipped`` where it is not one."""
    found = number(row, column)
    if found is None:
        return None
    if found < 0 or found != int(found):
        raise Skipped(f"{column} is not a whole number")
    return int(found) or None


def number(row: Row, column: str) -> float | None:
    """The cell as a number, ``None`` where it is empty; raises ``Skipped`` where it is not one."""
    cell = text(row, column).replace(",", "")
    if not cell:
        return None
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", cell) or abs(float(cell)) > LARGEST:
        raise Skipped(f"{column} is not a number")
    return float(cell)
