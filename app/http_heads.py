"""Heads of requests, which must be short and come soon: uvicorn itself waits for any, of any size, for ever."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cluster_models.units import KIB

MOST_HEAD_BYTES: Final = 64 * KIB
"""Address and headers."""
HEAD_WITHIN_S: Final = 20.0


class BoundedHeads(HttpToolsProtocol):
    """A connection that is closed where the head of a request is larger, or takes longer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_bytes = 0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Expect a head."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has arrived."""
        before = self._patience
        super().data_received(data)
        if before is not None and self._patience is before:  # all of it belongs to the head that was expected
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(f"The head of a request may have {MOST_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        """Expect the rest of a head that has begun."""
        super().on_message_begin()
        if self._patience is None:  # the first of a connection is expected already
            self._expect_head()

    def on_headers_complete(self) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().on_headers_complete()

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._patience = self.loop.call_later(
            HEAD_WITHIN_S, self._refuse, f"The head of a request must come within {HEAD_WITHIN_S:g} s."
        )

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _refuse(self, reason: str) -> None:
        self._stop_waiting()
        if self.transport.is_closing():
            return
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if self._head_bytes and not is_answering:
            self.send_400_response(reason)
        else:
            self.transport.close()
