"""Parts of values that came as JSON or YAML; what is of another kind than expected is as if it were not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mapping(value: object) -> Mapping[Any, Any]:
    """The mapping that a value is, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """The list that a value is, else an empty one."""
    return value if isinstance(value, list) else []


def plain(value: object) -> str:
    """The text of a string or a whole number, else nothing."""
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def joined(value: object, between: str = ",") -> str:
    """A list as one text; any other value as its own, ``None`` as nothing."""
    return between.join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
