"""Heads of requests that are too large or never end: the connection is closed, and nobody else waits."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from app import http_heads
from app.http_heads import MOST_HEAD_BYTES, BoundedHeads

PATIENCE_S = 0.5


async def _hello(_scope: Scope, receive: Receive, send: Send) -> None:
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
    await send({"type": "http.response.body", "body": f"{size:6d}".encode()})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server that counts bytes of bodies and has little patience."""
    monkeypatch.setattr(http_heads, "HEAD_WITHIN_S", PATIENCE_S)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(_hello, http=BoundedHeads, lifespan="off", log_level="critical")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


def _answer(port: int, *parts: bytes) -> bytes:
    """All that the server says to these parts, sent at once, until it closes the connection."""
    said = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        for part in parts:
            client.sendall(part)
        while new := client.recv(65536):
            said += new
    return said


def test_a_head_that_never_ends_is_refused(port: int) -> None:
    """In one header or many, and one that begins and waits, or never begins."""
    long = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * MOST_HEAD_BYTES
    assert b"may have 65536 bytes" in _answer(port, long)
    assert b"may have 65536 bytes" in _answer(port, b"GET /" + b"".join(b"a" * 1000 for _ in range(80)))
    assert _answer(port) == b""
    assert b"must come within 0.5 s" in _answer(port, b"GET / HTTP/1.1\r\nHo")
    assert _answer(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET").count(b"HTTP/1.1") == 1


def test_bodies_and_kept_connections_are_as_before(port: int) -> None:
    """A large body with its head, then a small one on the same connection."""
    body = b"b" * (2 * MOST_HEAD_BYTES)
    first = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    said = _answer(port, first + body, last)
    assert said.count(b"200 OK") == 2
    assert b"\r\n\r\n131072" in said
    assert said.endswith(b"\r\n\r\n     0")
