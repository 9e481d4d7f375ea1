"""Sources and their lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from readers.frame.facts import Name, NameKind, Origin


@dataclass(frozen=True, slots=True)
class Source:
    """One file.  ``tree`` is its value where it is JSON or YAML; ``host`` the node the sender says it is from."""

    name: str
    text: str
    tree: Any = None
    host: str | None = None

    @property
    def names(self) -> tuple[Name, ...]:
        """The name of that node, where the sender says it."""
        return () if self.host is None else (Name(NameKind.HOST, self.host),)


@dataclass(frozen=True, slots=True)
class Line:
    """``number`` counts from 1 in the file as sent; ``text`` is without launcher prefix, colours and line end."""

    number: int
    text: str
    teller: str = ""
    """Task that printed it, where a launcher said so: "0" of srun -l, "1,0" of mpirun, "pod/x" of kubectl."""
    stamp: str = ""
    """The moment that stood before it, in the form of RFC 3339, where most lines of the file carry one."""


def origin_of(source: Source, first: int, last: int | None = None, path: str = "") -> Origin:
    """The place of a fact on one line, or on the lines up to ``last``."""
    return Origin(source.name, first, first if last is None else last, path)
