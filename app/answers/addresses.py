"""Parts that answers share: moments and addresses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final
from urllib.parse import quote

from pydantic import Field

PREFIX: Final = "/api/v1"

Moment = Annotated[datetime, Field(description="In UTC.", examples=["2026-11-21T09:00:00Z"])]
Links = Annotated[dict[str, str], Field(description="Addresses of what belongs to it.")]


def address(*parts: str) -> str:
    """The address under this version of the API with these parts."""
    return "/".join((PREFIX, *(quote(part, safe="") for part in parts)))


def addresses(*place: str, parts: tuple[str, ...] = ()) -> dict[str, str]:
    """The address of the thing at ``place``, and of what lies below it by these names."""
    return {"self": address(*place)} | {part: address(*place, part) for part in parts}
