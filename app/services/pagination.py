"""Lists in pages: a cursor says where the next page begins, and nothing else does."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from cluster_models.errors import InvalidInput

T = TypeVar("T")
Row = TypeVar("Row")
Key = TypeVar("Key", str, int)

MAX_LIMIT: Final = 200
_LARGEST: Final = 2**31 - 1
"""The most that a column of whole numbers holds."""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some entries of a list, and the cursor of the next page unless this is the last."""

    items: tuple[T, ...]
    next_cursor: str | None


def encode_cursor(*keys: str | float) -> str:
    """The cursor of the entry with these keys, as text that fits into a URL."""
    return base64.urlsafe_b64encode(json.dumps(keys).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *kinds: type[str | float | datetime]) -> tuple[Any, ...]:
    """The keys in a cursor; raises ``InvalidInput`` for one that we did not make."""
    try:
        keys = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        # Half a pair of surrogates is not text.
        json.dumps(keys, ensure_ascii=False, allow_nan=False).encode()
        return tuple(_key(key, kind) for key, kind in zip(keys, kinds, strict=True))
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise InvalidInput(
            "cursor", cursor, "is not a cursor of this list", "take it from the page before"
        ) from None


def _key(key: object, kind: type[str | float | datetime]) -> object:
    """The key as its column holds it; raises ``ValueError``, ``OverflowError`` for what no column holds."""
    if kind is datetime and type(key) is int:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=key)
    beyond = abs(key) > _LARGEST if isinstance(key, int) else isinstance(key, str) and "\0" in key
    if type(key) is not kind or beyond:
        raise ValueError
    return key


def microseconds_of(moment: datetime) -> int:
    """A moment as microseconds since 1970, exactly."""
    since = moment - datetime.fromtimestamp(0, UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


def page_of(
    rows: Sequence[Row], *, limit: int, item: Callable[[Row], T], keys: Callable[[Row], tuple[str | float, ...]]
) -> Page[T]:
    """The page of up to ``limit`` of these rows; one row more than that means there is a next page."""
    shown = rows[:limit]
    more = len(rows) > limit
    return Page(tuple(map(item, shown)), encode_cursor(*keys(shown[-1])) if more else None)


def newest_first(
    session: Session,
    query: Select[Row],
    moment: InstrumentedAttribute[datetime],
    item: Callable[[Row], T],
    limit: int,
    cursor: str | None,
) -> Page[T]:
    """A page of the rows of ``query``, the latest ``moment`` first, and by id where moments are equal."""
    key = moment.class_.id
    if cursor is not None:
        query = query.where(tuple_(moment, key) < tuple_(*decode_cursor(cursor, datetime, str)))
    rows = session.scalars(query.order_by(moment.desc(), key.desc()).limit(limit + 1)).all()

    def keys(row: Row) -> tuple[int, str]:
        return microseconds_of(getattr(row, moment.key)), getattr(row, key.key)

    return page_of(rows, limit=limit, item=item, keys=keys)


def in_order(
    session: Session,
    query: Select[Row],
    key: InstrumentedAttribute[Key],
    item: Callable[[Row], T],
    limit: int,
    cursor: str | None,
) -> Page[T]:
    """A page of the rows of ``query`` by ``key``, which no two share."""
    if cursor is not None:
        (last,) = decode_cursor(cursor, key.type.python_type)
        query = query.where(key > last)
    rows = session.scalars(query.order_by(key).limit(limit + 1)).all()
    return page_of(rows, limit=limit, item=item, keys=lambda row: (getattr(row, key.key),))
