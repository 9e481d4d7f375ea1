"""Wording that sentences of several rooms share."""

from __future__ import annotations

from collections.abc import Sequence


def named(names: Sequence[str], most: int = 4) -> str:
    """The first ``most`` names, and how many more there are: "n1, n2, n3, n4 and 12 more"."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
