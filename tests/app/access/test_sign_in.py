"""Pages with access control: who signs in, what the cookie is like, and which forms are taken."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from app.access import tokens
from app.access.principals import Scope
from app.access.requests import COOKIE
from app.db.access_tables import SignInRow
from app.db.engine import transaction
from app.web.service.sign_in_pages import local
from tests.app.access.callers import OURS, THEIRS, guarded, key_of, service_of, with_key
from tests.app.api_client import API
from tests.app.failure_bodies import SITE, store_cluster

HTML = {"accept": "text/html"}
OUR_PAGE = {**HTML, "sec-fetch-site": "same-origin"}


@pytest.fixture
def service(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A service that asks for keys; its client follows no redirect."""
    with guarded(tmp_path, database_url) as client:
        client.follow_redirects = False
        yield client


def _sign_in(client: TestClient, key: str, place: str = "/clusters") -> None:
    answer = client.post("/sign-in", data={"key": key, "next": place}, headers=OUR_PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, place), answer.text
    attributes = answer.headers["set-cookie"].casefold()
    assert "httponly" in attributes
    assert "samesite=lax" in attributes
    assert key.split("_", 2)[2] not in answer.headers["set-cookie"]


def test_a_browser_signs_in_sees_its_tenant_and_signs_out(service: TestClient) -> None:
    """The way back to the page that was asked for, the pages of one's own tenant, and nothing after signing out."""
    store_cluster(with_key(service, key_of(service, OURS)))
    asked = service.get("/clusters?x=1", headers=HTML)
    assert asked.headers["location"] == "/sign-in?next=%2Fclusters%3Fx%3D1"
    assert "/clusters?x=1" in service.get(asked.headers["location"], headers=HTML).text
    assert service.post("/sign-in", data={"key": "mw_0_0"}, headers=OUR_PAGE).status_code == 401
    _sign_in(service, key_of(service, OURS))
    assert "eight" in service.get("/clusters", headers=HTML).text
    assert "Signed in as key of ours" in service.get("/clusters", headers=HTML).text
    cookie = service.cookies[COOKIE]
    assert service.post("/sign-out", headers=OUR_PAGE).status_code == 303
    service.cookies.set(COOKIE, cookie)
    assert service.get("/clusters", headers=HTML).status_code == 303
    service.cookies.clear()
    _sign_in(service, key_of(service, THEIRS))
    assert "eight" not in service.get("/clusters", headers=HTML).text


def test_a_sign_in_ends_with_its_time_and_with_its_key(service: TestClient) -> None:
    """An old cookie, and one whose key was revoked, are as none."""
    key = key_of(service, OURS)
    _sign_in(service, key)
    assert service.get(f"{API}/clusters").status_code == 200
    with_key(service, key_of(service, OURS)).delete(f"{API}/keys/{tokens.key_id_of(key)}")
    assert service.get(f"{API}/clusters").status_code == 401
    _sign_in(service, key_of(service, OURS))
    past = datetime.now(UTC) - timedelta(seconds=1)
    with transaction(service_of(service).sessions) as session:
        session.execute(update(SignInRow).values(expires_at=past))
    assert service.get(f"{API}/clusters").status_code == 401


@pytest.mark.parametrize("headers", [{}, {"sec-fetch-site": "cross-site"}, {"origin": "http://evil.example"}])
def test_forms_of_other_sites_do_nothing(service: TestClient, headers: dict[str, str]) -> None:
    """With the cookie alone nothing is changed: a browser says which page a form is from."""
    store_cluster(with_key(service, key_of(service, OURS)))
    _sign_in(service, key_of(service, OURS))
    assert service.delete(SITE, headers=headers).status_code == 403
    assert service.get(SITE).status_code == 200
    assert service.delete(SITE, headers={"sec-fetch-site": "same-origin"}).status_code == 204


def test_pages_ask_for_scopes_as_the_api_does(service: TestClient) -> None:
    """A viewer looks, and a form that would change something answers with a page that says why not."""
    _sign_in(service, key_of(service, OURS, Scope.READ))
    assert service.get("/plans/new", headers=HTML).status_code == 200
    refused = service.post("/webhooks", data={"do": "add_endpoint"}, headers=OUR_PAGE)
    assert refused.status_code == 403
    assert "admin" in refused.text
    assert "text/html" in refused.headers["content-type"]
    assert "script-src" not in refused.headers["content-security-policy"]
    assert "default-src 'self'" in refused.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("place", "safe"),
    [
        ("/plans?x=1", "/plans?x=1"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\tplans", "/"),
        ("", "/"),
    ],
)
def test_nobody_is_sent_elsewhere_after_signing_in(place: str, safe: str) -> None:
    """Only paths of ours are followed."""
    assert local(place) == safe
