"""Formats that the templates of sentences take beside those of ``str.format``: ``{missing_bytes:gib}``."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from typing import Any, Final

from cluster_models.units import GBYTE, GIB
from cluster_models.wording import named

Words = str | Callable[..., str]
"""A template over the figures of a remark, or a function that takes them as keywords."""

_FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "n": lambda number: f"{number:,.0f}",
    "and": " and ".join,
    "list": ", ".join,
    "names": named,
    "percent": lambda share: f"{100 * share:.0f} %",
    "percent1": lambda share: f"{100 * share:.1f} %",
    "percent2": lambda share: f"{100 * share:.2f} %",
    "gib": lambda size: f"{size / GIB:.1f} GiB",
    "gbytes": lambda rate: f"{rate / GBYTE:.4g} GB/s",
}


class _Formatter(string.Formatter):
    """``str.format`` with ``_FORMATS``."""

    def format_field(self, value: Any, format_spec: str) -> str:
        """``value`` in one of our formats, or else in one of its own."""
        ours = _FORMATS.get(format_spec)
        return format(value, format_spec) if ours is None else ours(value)


FORMATTER: Final = _Formatter()


def examples(shown: tuple[str, ...], total: int) -> str:
    """The first of ``total`` things, and how many more there are: "a, b and 7 more"."""
    more = total - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")
