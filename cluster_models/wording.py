"""Wording that sentences of several rooms share."""

from __future__ import annotations

from collections.abc import Sequence


def named(names: Sequence[str], most: int = 4) -> str:
    """The first ``most`` names, and how many more there are: "n1, n2, n3, n4 and 12 more"."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def joined(names: Sequence[str], most: int = 6) -> str:
    """Names in a sentence: "n1, n2 and n3", and as ``named`` says them where there are more than ``most``."""
    if len(names) > most:
        return named(names, most)
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
