"""Parts that the answers of all routes share: pages, moments and addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field

from app.answers.addresses import PREFIX, Links, Moment, address
from app.services.pagination import Page

__all__ = ["PREFIX", "Links", "Moment", "PageAnswer", "address", "page_answer"]

T = TypeVar("T")
Item = TypeVar("Item")


class PageAnswer(BaseModel, Generic[T]):
    """A page of a list."""

    model_config = ConfigDict(defer_build=True)

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
