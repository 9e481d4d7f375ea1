"""The kinds of files that an import recognises, in groups that people look for."""

from __future__ import annotations

from functools import cache
from typing import Final

from readers.registry import FORMATS

_GROUPS: Final = {
    "Bandwidth between nodes": ("bandwidth", "mpi", "network"),
    "Inside a node": ("gpu", "inside a node"),
    "Fabric": ("fabric", "topograph"),
    "Schedulers": ("slurm", "Kubernetes"),
    "Health": ("health",),
}
_REST: Final = "Others"


@cache
def known_formats() -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Group and kinds, without those that are recognised only to be refused."""
    group_of = {family: group for group, families in _GROUPS.items() for family in families}
    found: dict[str, list[str]] = {group: [] for group in (*_GROUPS, _REST)}
    for form in FORMATS:
        if not form.refused_because:
            found[group_of.get(form.family, _REST)].append(form.known_as)
    return tuple((group, tuple(kinds)) for group, kinds in found.items() if kinds)
