"""Follows a child: its newest progress is written down at most once a second, and who wants it is asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from sqlalchemy.orm import Session

from app.db.engine import DATABASE_AWAY, transaction
from app.jobs.context import JobContext
from app.jobs.patience import ServiceStopping

PROGRESS_EVERY_S: Final = 1.0

log = structlog.get_logger(__name__)

SaveProgress = Callable[[Session, dict[str, Any] | None], bool]
"""Stores the newest progress, if there is any; returns whether the answer is still wanted."""


class Following:
    """Callbacks for ``run_child``: ``keep`` for its progress, ``should_stop`` to end it early.

    ``is_enough`` once somebody wants its best answer so far, as ``enough`` says.
    """

    def __init__(
        self, context: JobContext, save: SaveProgress, enough: Callable[[Session], bool] = lambda _: False
    ) -> None:
        self._context = context
        self._save = save
        self._enough = enough
        self._is_enough = False
        self._newest: dict[str, Any] | None = None
        self._next_write = 0.0

    def keep(self, message: dict[str, Any]) -> None:
        """Remember a progress message."""
        self._newest = {name: value for name, value in message.items() if name != "kind"}

    def write_rest(self) -> None:
        """Write what came since the newest progress was written."""
        if self._newest is not None:
            self._next_write = 0.0
            self.should_stop()

    def should_stop(self) -> bool:
        """Whether nobody wants the answer any more; raises ``ServiceStopping`` when the process is to end."""
        if self._context.stopping.is_set():
            raise ServiceStopping
        if time.monotonic() < self._next_write:
            return False
        self._next_write = time.monotonic() + PROGRESS_EVERY_S
        try:
            with transaction(self._context.sessions) as session:
                wanted = self._save(session, self._newest)
                self._is_enough = self._enough(session)
        except DATABASE_AWAY as error:  # news can wait, and nobody can have called the job off meanwhile
            log.warning("progress_not_saved", reason=str(error)[:300])
            return False
        self._newest = None
        return not wanted

    def is_enough(self) -> bool:
        """Whether somebody wants the best answer so far, as far as ``should_stop`` has seen."""
        return self._is_enough
