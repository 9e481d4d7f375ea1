"""Keys in words, the same in lists of the terminal and of pages."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from app.access.keys import ApiKey

KEY_COLUMNS: Final = ("id", "name", "scopes", "state", "last used")


def key_cells(key: ApiKey, now: datetime) -> tuple[str, ...]:
    """A key as a line of a table with ``KEY_COLUMNS``."""
    return key.id, key.name, " ".join(key.scopes), key_state(key, now), minute(key.last_used_at) or "never"


def key_state(key: ApiKey, now: datetime) -> str:
    """Whether a key is valid, and since or until when."""
    if key.revoked_at is not None:
        return f"revoked {minute(key.revoked_at)}"
    if key.expires_at is None:
        return "valid"
    return f"{'valid until' if key.is_valid(now) else 'expired'} {minute(key.expires_at)}"


def minute(at: datetime | None) -> str:
    """A moment to the minute, in UTC; nothing for none."""
    return "" if at is None else f"{at:%Y-%m-%d %H:%M}"
