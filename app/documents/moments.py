"""Moments as users write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import AfterValidator, AwareDatetime, BeforeValidator
from pydantic_core import PydanticCustomError

_WRITTEN_OUT: Final = re.compile(r"\d{4}-\d\d-\d\d")


def _written_out(value: object) -> object:
    """A number says neither its unit nor its zone."""
    if isinstance(value, datetime) or (isinstance(value, str) and _WRITTEN_OUT.match(value)):
        return value
    raise PydanticCustomError("datetime_type", "is not a time")


def _in_utc(moment: datetime) -> datetime:
    """Equal moments look alike."""
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        raise PydanticCustomError("datetime_parsing", "is not a time") from error


Moment = Annotated[AwareDatetime, BeforeValidator(_written_out), AfterValidator(_in_utc)]
"""A moment, kept in UTC."""
