"""Only reports that hold the secret are believed."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from app.events.signatures import NotVerified, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of no system
OTHER = "whsec_AAAA9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
BODY = '{"state": "failed", "text": "größer"}'.encode()


def signed(body: bytes = BODY, *, secret: str = SECRET, at: datetime = NOW) -> dict[str, str]:
    """Headers of Standard Webhooks."""
    return {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": f"v1,AAAA {Webhook(secret).sign('msg_1', at, body.decode())}",
    }


def hub(secret: str = SECRET) -> dict[str, str]:
    """A signature as code hosts send it."""
    return {"X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), BODY, hashlib.sha256).hexdigest()}


@pytest.mark.parametrize(
    "headers",
    [
        signed(),
        signed(at=NOW - timedelta(seconds=299)),
        signed(at=NOW + timedelta(seconds=299)),
        hub(),
        {"Authorization": f"Bearer {SECRET}"},
        {"authorization": f"bearer  {SECRET} "},
    ],
)
def test_what_holds_the_secret_passes(headers: dict[str, str]) -> None:
    verify(headers, BODY, SECRET, NOW)


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({}, "is not signed"),
        (signed(b"{}"), "No signature"),
        (signed(secret=OTHER), "No signature"),
        (signed(at=NOW - timedelta(seconds=301)), "301 s ago"),
        (signed(at=NOW + timedelta(seconds=301)), "301 s ahead"),
        (signed() | {"Webhook-Timestamp": "soon"}, "seconds since 1970"),
        (signed() | {"Webhook-Timestamp": str(int(NOW.timestamp()) + 1)}, "No signature"),
        (signed() | {"Webhook-Id": "msg_2"}, "No signature"),
        (signed() | {"Webhook-Id": ""}, "webhook-id is missing"),
        (signed() | {"Webhook-Signature": ""}, "No signature"),
        # a bad signature is not saved by anything else
        (signed(b"{}") | {"Authorization": f"Bearer {SECRET}"}, "No signature"),
        (hub(OTHER), "HMAC"),
        ({"Authorization": f"Bearer {OTHER}"}, "bearer token"),
        ({"Authorization": "Bearer"}, "bearer token"),
        ({"Authorization": f"Basic {SECRET}"}, "Bearer"),
    ],
)
def test_what_does_not_is_refused_with_the_reason(headers: dict[str, str], said: str) -> None:
    with pytest.raises(NotVerified, match=said) as refused:
        verify(headers, BODY, SECRET, NOW)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_!"])
def test_without_a_usable_secret_nothing_passes(secret: str) -> None:
    for headers in (signed(), {"Authorization": f"Bearer {secret}"} if not secret else signed()):
        with pytest.raises(NotVerified):
            verify(headers, BODY, secret, NOW)


@given(
    st.dictionaries(
        st.sampled_from(
            ["webhook-id", "webhook-timestamp", "webhook-signature", "authorization", "x-hub-signature-256"]
        ),
        st.text() | st.sampled_from([str(int(NOW.timestamp())), "v1,AAAA", "Bearer x"]),
    ),
    st.binary(),
)
def test_garbage_is_refused_and_never_breaks(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(NotVerified):
        verify(headers, body, SECRET, NOW)
