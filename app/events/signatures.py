"""Whether a report comes from whom it says: signatures, and secrets for senders that cannot sign."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from standardwebhooks.webhooks import EmptyWebhookSecretError, Webhook

from cluster_models.errors import MeshwrightError

REPLAY_WINDOW_S: Final = 300.0
"""Largest distance between the moment of a signature and now, as Standard Webhooks recommends."""
_ID, _MOMENT, _SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
_HUB: Final = "x-hub-signature-256"
_MOST_SIGNATURES: Final = 20


class NotVerified(MeshwrightError):
    """A report is not proven to come from its source; says why, never what would have been right."""


def verify(headers: Mapping[str, str], body: bytes, secret: str, now: datetime) -> None:
    """Pass only what holds the ``secret``; raises ``NotVerified``.

    One of three, the first that the headers show: a signature of Standard Webhooks (whose moment lies within
    ``REPLAY_WINDOW_S`` of ``now``), ``X-Hub-Signature-256`` over the body, or the secret itself as bearer token.
    The last two carry no moment: a report that is sent again is known by its id.
    """
    by_name = {name.lower(): value for name, value in headers.items()}
    if not secret:
        raise NotVerified("The source has no secret; make a new one.")
    if _SIGNATURE in by_name:
        _verify_standard(by_name, body, secret, now)
    elif _HUB in by_name:
        expected = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        _compare(by_name[_HUB].strip().lower(), expected, f"The header {_HUB} is not the body's HMAC-SHA256.")
    elif "authorization" in by_name:
        scheme, _, token = by_name["authorization"].strip().partition(" ")
        if scheme.lower() != "bearer":
            raise NotVerified("The header Authorization must say Bearer, then the secret of the source.")
        _compare(token.strip(), secret, "The bearer token is not the secret of the source.")
    else:
        raise NotVerified(
            f"The report is not signed: send {_ID}, {_MOMENT} and {_SIGNATURE}, or {_HUB}, or the secret of the "
            "source as Authorization: Bearer."
        )


def _verify_standard(headers: Mapping[str, str], body: bytes, secret: str, now: datetime) -> None:
    message_id, told = headers.get(_ID, ""), headers.get(_MOMENT, "").strip()
    if not (message_id and message_id.isascii()) or not told:
        missing = _MOMENT if message_id else _ID
        raise NotVerified(f"The header {missing} is missing or odd: it is part of what is signed.")
    if not (told.isascii() and told.isdigit() and len(told) <= 11):
        raise NotVerified(f"The header {_MOMENT} must be seconds since 1970.")
    age_s = now.timestamp() - int(told)
    if abs(age_s) > REPLAY_WINDOW_S:
        where = f"{age_s:.0f} s ago" if age_s > 0 else f"{-age_s:.0f} s ahead"
        raise NotVerified(f"The signature is from {where}, more than {REPLAY_WINDOW_S:.0f} s: check the clocks.")
    try:
        signer, text = Webhook(secret), body.decode()
    except UnicodeDecodeError:
        raise NotVerified("The body is not UTF-8 text: it cannot have been signed so.") from None
    except (ValueError, RuntimeError, EmptyWebhookSecretError):
        raise NotVerified("The secret of the source is not one of Standard Webhooks; make a new one.") from None
    expected = signer.sign(message_id, datetime.fromtimestamp(int(told), UTC), text)
    given = headers[_SIGNATURE].split()[:_MOST_SIGNATURES]
    if not any([_equal(each, expected) for each in given]):  # noqa: C419 - every one, whichever fits
        raise NotVerified(f"No signature of the header {_SIGNATURE} fits the body and the secret of the source.")


def _compare(given: str, expected: str, problem: str) -> None:
    if not _equal(given, expected):
        raise NotVerified(problem)


def _equal(given: str, expected: str) -> bool:
    """Whether two texts are alike, in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
