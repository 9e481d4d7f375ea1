"""Answers that are kept as bytes: read once, bounded, and never older than the database."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from app.api.v1.kept_answers import KeptAnswers
from app.services.planning import plans
from tests.app.api_client import API, cluster_body, ended, plan_body, running


class _Text(BaseModel):
    text: str


def test_what_was_read_long_ago_makes_room() -> None:
    """The bound is of bytes, and one answer that is larger than it is answered all the same."""
    kept, made = KeptAnswers(most_bytes=40), list[str]()

    def read(key: str, size: int = 1) -> bytes:
        def make() -> _Text:
            made.append(key)
            return _Text(text=key * size)

        return kept.body(key, make)

    for key in "abacabd":
        assert read(key) == b'{"text":"%s"}' % key.encode()
    assert made == ["a", "b", "c", "d"]
    assert len(read("e", 100)) > 40
    read("a")
    assert made == ["a", "b", "c", "d", "e", "a"]


def test_a_change_is_seen_by_the_next_read(tmp_path: Path) -> None:
    """New content, new measurements, and another cluster of the same name."""
    with running(tmp_path, "") as client:
        body = cluster_body()
        made = client.post(f"{API}/clusters", json=body)
        address = made.headers["location"]
        node = body["nodes"][0]["name"]
        assert client.get(address).json() == client.get(address).json() == made.json()
        client.patch(f"{address}/nodes/{node}", json={"state": "failed"})
        changed = client.get(address)
        assert (changed.headers["etag"], changed.json()["cluster"]["nodes"][0]["state"]) == ('"2"', "failed")
        client.delete(address)
        assert client.get(address).status_code == 404
        again = client.post(f"{API}/clusters", json=body)
        assert client.get(address).json() == again.json()
        assert again.json()["id"] != made.json()["id"]


def test_a_result_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that has ended is answered from its row alone."""
    with running(tmp_path, "") as client:
        client.post(f"{API}/clusters", json=cluster_body())
        address = client.post(f"{API}/plans", json=plan_body()).headers["location"]
        first = ended(client, address)
        client.get(address)
        monkeypatch.setattr(plans, "get_result", None)
        assert client.get(address).json() == first
        assert first["result"]
