"""Secrets that callers carry: keys of the API and cookies of pages.

Each has 256 random bits, so one round of SHA-256 is enough to keep it by: there is nothing to guess from a stolen
digest, unlike with passwords.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "mw_"
"""Start of every key: secret scanners find it, and it is never taken for another secret."""
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class NewToken:
    """A secret that is shown once, the public part that it is looked up by, and the digest that is kept."""

    id: str
    text: str
    digest: str


def new_key() -> NewToken:
    """A key, ``mw_ID_SECRET``."""
    key_id = secrets.token_hex(_ID_BYTES)
    text = f"{PREFIX}{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    return NewToken(key_id, text, digest_of(text))


def new_cookie() -> NewToken:
    """Content of a cookie; it is looked up by its digest."""
    text = secrets.token_urlsafe(_SECRET_BYTES)
    return NewToken(digest_of(text), text, digest_of(text))


def key_id_of(text: str) -> str | None:
    """The public part of a key; ``None`` of what is not a key."""
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    return key_id if f"{prefix}_" == PREFIX and key_id and secret else None


def digest_of(text: str) -> str:
    """The digest that a secret is kept by."""
    return hashlib.sha256(text.encode()).hexdigest()


def is_same(text: str, digest: str) -> bool:
    """Whether a secret has that digest, in the same time whatever the difference."""
    return hmac.compare_digest(digest_of(text), digest)
