"""Looks at the database that many requests share, to know whether anything was stored since an earlier one."""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Engine

from app.db.changes import has_marks, mark_of
from app.db.engine import DATABASE_AWAY
from app.resources import whole_service_of

PATIENCE_S: Final = 1.0
"""A database that is silent for longer is asked by the request itself, which has its own limits."""
_MARK: Final = "database_mark"
"""Key in the state of a request."""


class Looks:
    """The marks of the database; each look serves all requests that came before it began."""

    def __init__(self) -> None:
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

    async def mark(self, request: Request) -> str | None:
        """The mark of the database after a request came; ``None`` where it does not say so soon."""
        engine = whole_service_of(request).engine
        if not has_marks(engine):
            return None
        state = request.scope.setdefault("state", {})
        if _MARK not in state:
            line = self._lines.setdefault(asyncio.get_running_loop(), _Line())
            try:
                look = line.join(engine)
                state[_MARK] = await asyncio.wait_for(asyncio.shield(look), PATIENCE_S)
            except TimeoutError:
                state[_MARK] = None
        mark: str | None = state[_MARK]
        return mark


class _Line:
    """The look that is under way, and the one that waits for its end and may be joined."""

    def __init__(self) -> None:
        self._next: asyncio.Task[str | None] | None = None
        self._running: asyncio.Task[str | None] | None = None

    def join(self, engine: Engine) -> asyncio.Task[str | None]:
        """A look that has not begun."""
        if self._next is None:
            self._next = asyncio.create_task(self._look(engine, self._running))
        return self._next

    async def _look(self, engine: Engine, before: asyncio.Task[str | None] | None) -> str | None:
        if before is not None:
            await asyncio.wait([before])
        self._next, self._running = None, self._next
        try:
            return await run_in_threadpool(mark_of, engine)
        except DATABASE_AWAY:
            return None
