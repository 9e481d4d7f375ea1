"""Figures of benchmarks: what a tool can have printed of a size, a time or a rate."""

from __future__ import annotations

from typing import Final

from readers.frame.numbers import finite

MOST: Final = 1e15
"""In any unit of the tools: bytes, bits per second, megabytes per second, microseconds.  More is damage."""


def figure(text: str) -> float | None:
    """The number that the whole text is, between 0 and ``MOST``; so that no unit makes it infinite."""
    value = finite(text)
    return value if value is not None and 0 <= value <= MOST else None
