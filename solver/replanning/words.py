"""Words that several sentences about decisions need."""

from __future__ import annotations

from collections.abc import Sequence


def named(names: Sequence[str], most: int = 4) -> str:
    """The first names for a sentence, and how many there are beside."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
