"""Server-sent events about a stored thing: what it looks like whenever that changed, until it has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol, TypeVar

from fastapi.concurrency import run_in_threadpool
from fastapi.sse import ServerSentEvent
from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.db.engine import SessionFactory
from app.services.errors import NotFound

EVENTS_EVERY_S: Final = 0.5
EVENTS_END_AFTER_S: Final = 600.0
"""A stream ends after ten minutes; browsers open a new one by themselves."""


class _Record(Protocol):
    @property
    def is_open(self) -> bool:
        """Whether it can still change."""


RecordT = TypeVar("RecordT", bound=_Record)


async def changes(
    sessions: SessionFactory, read: Callable[[Session], RecordT], shown: Callable[[RecordT], BaseModel]
) -> AsyncIterator[ServerSentEvent]:
    """``progress`` whenever what is ``shown`` changed, and ``end`` once the record has ended.

    ``read`` raises ``NotFound`` for a record that is gone, with which the events end, too.
    """

    def current() -> RecordT | None:
        with sessions() as session:
            try:
                return read(session)
            except NotFound:
                return None

    last: dict[str, Any] | None = None
    until, number = time.monotonic() + EVENTS_END_AFTER_S, 0
    while time.monotonic() < until:
        record = await run_in_threadpool(current)
        if record is None:
            return
        event = shown(record).model_dump(mode="json")
        if event != last:
            number, last = number + 1, event
            yield ServerSentEvent(data=event, event="progress" if record.is_open else "end", id=str(number))
        if not record.is_open:
            return
        await asyncio.sleep(EVENTS_EVERY_S)
