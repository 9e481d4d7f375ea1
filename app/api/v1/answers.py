"""Parts that all answers share: pages, moments and addresses."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Final, Generic, TypeVar
from urllib.parse import quote

from fastapi import Request
from pydantic import BaseModel, Field

from app.services.pagination import Page

T = TypeVar("T")
Item = TypeVar("Item")

PREFIX: Final = "/api/v1"

Moment = Annotated[datetime, Field(description="In UTC.", examples=["2026-11-21T09:00:00Z"])]
Links = Annotated[dict[str, str], Field(description="Addresses of what belongs to it.")]


class PageAnswer(BaseModel, Generic[T]):
    """A page of a list."""

    items: list[T] = Field(description="The entries.")
    next_cursor: str | None = Field(description="Cursor of the next page; null on the last.")
    next: str | None = Field(description="Address of the next page; null on the last.")


def page_answer(request: Request, page: Page[Item], answer: Callable[[Item], T]) -> PageAnswer[T]:
    """The answer for a page, with the address of the next one: this one's, with another cursor."""
    address = None
    if page.next_cursor is not None:
        url = request.url.include_query_params(cursor=page.next_cursor)
        address = f"{url.path}?{url.query}"
    return PageAnswer(items=[answer(item) for item in page.items], next_cursor=page.next_cursor, next=address)


def address(*parts: str) -> str:
    """The address under this version of the API with these parts."""
    return "/".join((PREFIX, *(quote(part, safe="") for part in parts)))
