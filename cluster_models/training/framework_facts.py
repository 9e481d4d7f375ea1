"""Facts of frameworks: their meaning, how users write them, and how a data file's values become theirs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, get_args, get_origin


@dataclass(frozen=True, slots=True)
class Fact:
    """Meaning of a field of ``Framework``, and how users write it.

    ``most``: no number above it is possible.  ``precision``: users write a width in bytes as the number format of
    that width, in a field of this name.  ``setting``: a single run may depart from what its framework does.
    ``least``: items of a list.
    """

    meaning: str
    most: float = math.inf
    precision: str = ""
    setting: bool = False
    least: int = 1


def choices_of(kind: Any) -> type[StrEnum] | None:
    """The enumeration that a fact, or each item of one that is a list, comes from; ``None`` for others."""
    each = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return each if issubclass(each, StrEnum) else None


def read_fact(kind: Any, value: Any) -> Any:
    """A value of the data file as ``Framework`` holds it."""
    if (choice := choices_of(kind)) is None:
        return value
    return tuple(map(choice, value)) if isinstance(value, list) else choice(value)
