"""Single values of a Hugging Face ``config.json``, checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cluster_models.errors import InvalidModel
from cluster_models.model.huggingface_keys import Config, Flag

_MOST: Final = 10**9
"""No width, count or length of a model comes near; a larger number is a slip of the pen."""


def count(config: Config, key: str, *, least: int = 1, most: int = _MOST, default: int | None = None) -> int:
    """The whole number under ``key``, or the one that a list repeats; ``default`` where it is absent or null."""
    value = config.get(key)
    if isinstance(value, list) and len(value) > 1 and all(one == value[0] for one in value):
        value = value[0]  # one number for each layer (Hunyuan)
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


def layer_types(config: Config, layers: int, known: Iterable[str], key: str = "layer_types") -> list[str]:
    """The kind of each of the ``layers`` by the list under ``key``; further ones are of multi-token prediction.

    Raises ``InvalidModel`` where it is no such list or names a kind outside ``known``.
    """
    kinds = config.get(key)
    extra = config.get("num_nextn_predict_layers")
    most = layers + (extra if isinstance(extra, int) else 0)
    if not isinstance(kinds, list) or not layers <= len(kinds) <= most:
        raise InvalidModel(f"model.{key}", kinds, f"must list {layers} layers, as the model has")
    known = list(known)
    unknown = sorted({str(kind) for kind in kinds} - set(known))
    if unknown:
        raise InvalidModel(
            f"model.{key}", unknown, "is a kind of layer that cannot be read", f"known are {', '.join(known)}"
        )
    return [str(kind) for kind in kinds[:layers]]


def whole_numbers(config: Config, key: str | None) -> list[int] | None:
    """The list of whole numbers under ``key``, ``None`` where it is absent, null or no list."""
    listed = config.get(key) if key else None
    if not isinstance(listed, list):
        return None
    if any(type(one) is not int for one in listed):
        raise InvalidModel(f"model.{key}", listed, "must be a list of whole numbers")
    return listed
