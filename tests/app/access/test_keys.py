"""Keys: what opens the service, what does not any more, and what is left of a secret."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text, update

from app.access import tokens
from app.access.principals import Scope
from app.db.access_tables import ApiKeyRow
from app.db.engine import transaction
from app.settings import Access, Settings
from app.startup import CannotStart, listening_socket
from tests.app.access.callers import OURS, guarded, key_of, service_of, with_key
from tests.app.api_client import API, running


@pytest.fixture
def service(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A service that asks for keys."""
    with guarded(tmp_path, database_url) as client:
        yield client


def test_a_key_is_shown_once_and_kept_as_a_digest(service: TestClient) -> None:
    """Neither the list nor the database has what would open the service."""
    admin = with_key(service, key_of(service, OURS))
    made = admin.post(f"{API}/keys", json={"name": "nightly", "role": "planner"})
    assert made.status_code == 201
    key = made.json()["key"]
    assert key.startswith(f"mw_{made.json()['id']}_")
    assert made.json()["scopes"] == ["plan", "read"]
    secret = key.split("_", 2)[2]
    assert secret not in admin.get(f"{API}/keys").text + admin.get(made.headers["Location"]).text
    with service_of(service).read_sessions() as session:
        assert secret not in repr(session.execute(text("SELECT * FROM api_keys")).all())
    caller = with_key(service, key).get(f"{API}/access").json()
    assert caller == {"tenant": OURS, "name": "nightly", "scopes": ["plan", "read"]}
    used = admin.get(made.headers["Location"]).json()["last_used_at"]
    assert abs(datetime.fromisoformat(used) - datetime.now(UTC)) < timedelta(minutes=5)


def test_keys_that_open_nothing(service: TestClient) -> None:
    """Revoked, expired, with another secret or id, cut short, or not a key at all: 401 with the way to ask."""
    admin = with_key(service, key_of(service, OURS))
    revoked, expired, good = (key_of(service, OURS) for _ in range(3))
    assert admin.delete(f"{API}/keys/{tokens.key_id_of(revoked)}").status_code == 204
    past = datetime.now(UTC) - timedelta(seconds=1)
    with transaction(service_of(service).sessions) as session:
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == tokens.key_id_of(expired)).values(expires_at=past))
    other = f"mw_{tokens.key_id_of(good)}_{revoked.split('_', 2)[2]}"
    for text_of_key in (
        revoked,
        expired,
        other,
        good[:-1],
        good + "x",
        "mw_",
        "mw__",
        "mw_x_\u00e9",
        "anything",
        "",
    ):
        answer = service.get(f"{API}/access", headers={"Authorization": f"Bearer {text_of_key}".encode("latin-1")})
        assert (answer.status_code, answer.json()["type"]) == (401, "/problems/not-signed-in"), text_of_key
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="meshwright"'
    assert with_key(service, good).get(f"{API}/access").status_code == 200


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"role": "king"}, "role"),
        ({"role": None}, "scopes"),
        ({"scopes": ["fly"]}, "scopes"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "\n"}, "name"),
    ],
)
def test_keys_that_cannot_be(service: TestClient, changes: dict[str, object], field: str) -> None:
    """Each says which value is wrong."""
    admin = with_key(service, key_of(service, OURS))
    answer = admin.post(f"{API}/keys", json={"name": "x", "role": "viewer"} | changes)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field


def test_whoever_has_no_key_makes_the_service_read_nothing(service: TestClient) -> None:
    """A large body is refused before it is read: the answer comes although it is not even JSON."""
    answer = service.post(f"{API}/clusters", content=b"[" * 100_000, headers={"Content-Type": "application/json"})
    assert answer.status_code == 401


def test_operators_and_probes_get_in(service: TestClient) -> None:
    """Health, the description, types of problems and the profiler say nothing of any tenant."""
    for address in (
        "/healthz",
        f"{API}/openapi.json",
        "/problems/not-found",
        "/profiler/gpu_profile.py",
        "/sign-in",
    ):
        assert service.get(address).status_code == 200, address
    assert service.get("/metrics").status_code == 401
    metrics = with_key(service, key_of(service, OURS, Scope.READ)).get("/metrics")
    assert "meshwright_plans" in metrics.text


def test_a_service_on_this_machine_is_open_as_ever(tmp_path: Path) -> None:
    """Without access control anybody is the default tenant's administrator; a wrong key is wrong all the same."""
    with running(tmp_path, "") as client:
        assert client.get(f"{API}/access").json()["scopes"] == sorted(Scope)
        assert client.get("/audit", headers={"accept": "text/html"}).status_code == 200
        assert client.get(f"{API}/access", headers={"Authorization": "Bearer mw_0_0"}).status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "planner.example"])  # noqa: S104 - what is refused
def test_a_service_that_others_reach_does_not_start_without_access_control(tmp_path: Path, host: str) -> None:
    """The refusal names all three ways out; on this machine, or where it is said in words, it starts."""
    with pytest.raises(CannotStart, match=r"MESHWRIGHT_ACCESS=keys.*127\.0\.0\.1.*open-to-everyone"):
        listening_socket(Settings(data_dir=tmp_path, host=host, port=0))
    for access in (Access.LOOPBACK, Access.KEYS, Access.OPEN):
        listening_socket(Settings(data_dir=tmp_path, port=0, access=access)).close()
    listening_socket(Settings(data_dir=tmp_path, host="0.0.0.0", port=0, access=Access.OPEN)).close()  # noqa: S104
