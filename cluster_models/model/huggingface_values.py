"""Single values of a Hugging Face ``config.json``, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cluster_models.errors import InvalidModel
from cluster_models.model.huggingface_families import Flag

Config = Mapping[str, object]

_MOST: Final = 10**9
"""No width, count or length of a model comes near; a larger number is a slip of the pen."""


def count(config: Config, key: str, *, least: int = 1, most: int = _MOST, default: int | None = None) -> int:
    """The whole number under ``key``; ``default`` where the key is absent or null."""
    value = config.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidModel(f"model.{key}", value, "must be a whole number")
    if not least <= value <= most:
        raise InvalidModel(f"model.{key}", value, f"must lie in {least}..{most}")
    return value


def optional_count(config: Config, key: str) -> int | None:
    """The whole number under ``key``, ``None`` where it is absent or null."""
    return None if config.get(key) is None else count(config, key)


def flag(config: Config, stated: bool | Flag) -> bool:
    """The yes or no that the family fixes or the file states."""
    if isinstance(stated, bool):
        return stated
    value = config.get(stated.key)
    if value is None:
        return stated.default
    if not isinstance(value, bool):
        raise InvalidModel(f"model.{stated.key}", value, "must be true or false")
    return value
