"""Reads payloads and shows their reports in one line each."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from app.events.reading import Reported
from app.events.registry import ADAPTERS

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def read(adapter: str, payload: Any, *, now: datetime = NOW) -> Reported:
    """Reports that an adapter reads: from text and bytes as they are, from other values as JSON."""
    if isinstance(payload, str):
        payload = payload.encode()
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    return ADAPTERS[adapter].read(body, now)


def shown(reported: Reported) -> list[str]:
    """``kind node:part state code`` of each report; nothing may have been left unread."""
    assert reported.unread == ()
    return [
        " ".join(filter(None, (each.kind, f"{each.told}:{each.part}".rstrip(":"), each.state, each.code)))
        for each in reported.events
    ]
