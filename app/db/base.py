"""Foundations of every table: names of constraints, moments in UTC, and JSON as text."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import DateTime, Dialect, Double, MetaData, String, Text, TypeDecorator
from sqlalchemy.orm import DeclarativeBase


def _in_utc(moment: datetime | None) -> datetime | None:
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


class UtcDateTime(TypeDecorator[datetime]):
    """Moments with a time zone on both databases; SQLite alone would forget the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """The moment in UTC; one without a zone is taken as UTC."""
        return _in_utc(value)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """The moment in UTC, with its zone."""
        return _in_utc(value)


class JsonText(TypeDecorator[dict[str, Any]]):
    """A JSON object as text: infinities, which PostgreSQL's own type refuses, come back as they went in."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: dict[str, Any] | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """The object as compact text."""
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> dict[str, Any] | None:  # noqa: ARG002
        """The object that was stored."""
        if value is None:
            return None
        document: dict[str, Any] = json.loads(value)
        return document


class Base(DeclarativeBase):
    """Every table; constraints have names, so that migrations can find them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_name)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: UtcDateTime,
        dict[str, Any]: JsonText,
        float: Double,
        str: String,
    }
