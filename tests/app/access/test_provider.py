"""People who sign in with an identity provider, and answers of one that are not to be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from fastapi.testclient import TestClient
from joserfc.jwk import RSAKey

from app.access import tenants
from app.access.requests import COOKIE
from app.access.tenants import Quotas
from app.db.engine import transaction
from app.main import create_app
from app.settings import Access, Role, Settings
from app.startup import CannotStart
from tests.app.access.callers import OURS, service_of
from tests.app.access.identity_provider import CLIENT, Provider, identity_provider
from tests.app.api_client import API
from tests.app.shared_routes import with_shared_routes
from tests.databases import begin_at_newest

ROLES = {"planner-admins": f"admin@{OURS}", "researchers": "planner", "ghosts": "viewer@nowhere"}


@pytest.fixture
def provider() -> Iterator[Provider]:
    """An identity provider on this machine."""
    with identity_provider() as found:
        yield found


@pytest.fixture
def browser(tmp_path: Path, provider: Provider) -> Iterator[TestClient]:
    """A browser in front of a service whose people sign in there."""
    settings = Settings(
        data_dir=tmp_path,
        database_url="",
        role=Role.WEB,
        access=Access.KEYS,
        oidc_issuer=provider.issuer,
        oidc_client_id=CLIENT,
        oidc_client_secret="between us",  # noqa: S106 - of a provider that lives as long as the test
        oidc_roles=ROLES,
    )
    begin_at_newest(settings)
    app = with_shared_routes(create_app(settings))
    with TestClient(app, base_url="http://localhost", headers={"accept": "text/html"}) as client:
        client.follow_redirects = False
        with transaction(service_of(client).sessions) as session:
            tenants.create_tenant(session, name=OURS, quotas=Quotas())
        yield client


def _way_back(browser: TestClient, provider: Provider, **changes: str) -> Any:
    """The answer to a browser that comes back with a code."""
    there = browser.get("/sign-in/provider?next=/clusters")
    assert there.status_code == 302, there.text
    query = urlsplit(there.headers["location"]).query
    assert "code_challenge_method=S256" in query
    code, state = provider.code_for(query)
    answer = {"code": code, "state": state} | changes
    return browser.get("/sign-in/answer", params=answer)


def test_a_person_gets_the_role_of_their_group(browser: TestClient, provider: Provider) -> None:
    """The claim's group names role and tenant; the log knows the person by their address."""
    provider.claims = {"email": "ada@example.org", "groups": ["everybody", "planner-admins"]}
    assert "/sign-in/provider" in browser.get("/sign-in").text
    back = _way_back(browser, provider)
    assert (back.status_code, back.headers["location"]) == (303, "/clusters")
    caller = browser.get(f"{API}/access").json()
    assert (caller["tenant"], caller["name"], "admin" in caller["scopes"]) == (OURS, "ada@example.org", True)
    assert "ada@example.org" in browser.get("/audit").text


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"email": "eve@example.org"}, "no role here"),
        ({"email": "eve@example.org", "groups": ["strangers"]}, "no role here"),
        ({"email": "eve@example.org", "groups": "ghosts"}, "no role here"),
        ({"nonce": "another", "groups": ["researchers"]}, "cannot be used"),
        ({"aud": "another", "groups": ["researchers"]}, "cannot be used"),
        ({"iss": "http://127.0.0.1:1", "groups": ["researchers"]}, "cannot be used"),
        ({"exp": 1, "groups": ["researchers"]}, "cannot be used"),
    ],
)
def test_who_is_not_let_in(browser: TestClient, provider: Provider, claims: dict[str, Any], words: str) -> None:
    """No role, a tenant that does not exist, a token for another attempt, service, issuer or time."""
    provider.claims = claims
    back = _way_back(browser, provider)
    assert back.status_code == 401
    assert words in back.text
    assert COOKIE not in browser.cookies


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"oidc_client_id": ""}, "OIDC_CLIENT_ID"),
        ({"oidc_client_secret": ""}, "OIDC_CLIENT_SECRET"),
        ({"oidc_roles": {}}, "OIDC_ROLES"),
        ({"oidc_roles": {"all": "king@lab"}}, "king@lab"),
    ],
)
def test_half_a_provider_is_refused_at_the_start(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    """Each refusal names the setting."""
    whole = {
        "oidc_issuer": "https://id.example",
        "oidc_client_id": "c",
        "oidc_client_secret": "s",
        "oidc_roles": ROLES,
    }
    with pytest.raises(CannotStart, match=words):
        create_app(Settings.model_validate({"data_dir": tmp_path, **whole, **changes}))


def test_forged_answers_are_refused(browser: TestClient, provider: Provider) -> None:
    """A state that this browser was not given, a code that is made up, a token that somebody else signed."""
    provider.claims = {"groups": ["researchers"]}
    for changes in ({"state": "made-up"}, {"code": "made-up"}):
        assert _way_back(browser, provider, **changes).status_code == 401
    provider.signs_with = RSAKey.generate_key(2048, {"kid": "k1"})
    assert _way_back(browser, provider).status_code == 401
    assert COOKIE not in browser.cookies
    provider.signs_with = None
    assert _way_back(browser, provider).status_code == 303
