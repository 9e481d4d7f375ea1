"""Tables of the package's own data files: entries by name that share defaults."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from importlib import resources
from types import MappingProxyType
from typing import Any, Protocol, TypeVar


class Released(Protocol):
    """A generation of a framework or an engine: its name, and the month it came out in ("2025-06")."""

    @property
    def name(self) -> str:
        """Name by which users refer to it."""

    @property
    def released(self) -> str:
        """Month of its release."""


Generation = TypeVar("Generation", bound=Released)


def generations(
    file: str, table: str, make: Callable[[str, dict[str, Any]], Generation]
) -> MappingProxyType[str, Generation]:
    """Values that ``make`` gives for the entries of ``table`` in a data file, by name, oldest first.

    It gets the name and the entry over the file's ``defaults``.
    """
    text = resources.files("cluster_models").joinpath("data", file).read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    made = (make(name, tables["defaults"] | entry) for name, entry in tables[table].items())
    ordered = sorted(made, key=lambda each: (each.released, each.name))
    return MappingProxyType({each.name: each for each in ordered})
