"""The page of keys: made, shown once, revoked, by administrators only."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from app.access.principals import Scope
from tests.app.access.callers import OURS, THEIRS, guarded, key_of, with_key
from tests.app.api_client import API

PAGE = {"accept": "text/html", "sec-fetch-site": "same-origin"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service that asks for keys."""
    folder = tmp_path_factory.mktemp("keys")
    with guarded(folder, f"sqlite:///{folder}/a.sqlite") as client:
        yield client


def test_a_key_is_made_shown_once_and_revoked(service: TestClient) -> None:
    """It opens what its role opens until it is revoked; of another tenant's keys nothing is seen."""
    admin = with_key(service, key_of(service, OURS))
    key_of(service, THEIRS)
    form = {"name": "nightly", "role": "viewer", "days": "30", "requests_per_minute": "60"}
    made = admin.post("/keys", data=form, headers=PAGE)
    assert made.status_code == 201
    (text,) = re.findall(r"mw_[A-Za-z0-9]+_[A-Za-z0-9_-]+", made.text)
    reader = with_key(service, text)
    assert reader.get(f"{API}/access").json()["scopes"] == ["read"]
    listed = admin.get("/keys", headers=PAGE).text
    assert text not in listed
    assert "valid until" in listed
    assert f"key of {THEIRS}" not in listed
    key_id = text.split("_")[1]
    answer = admin.post(f"/keys/{key_id}/revoke", headers=PAGE, follow_redirects=False)
    assert answer.status_code == 303
    assert reader.get(f"{API}/access").status_code == 401
    assert "revoked" in admin.get("/keys", headers=PAGE).text
    assert "key_pages.make_key" in admin.get(f"{API}/audit").text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"name": " "}, "printable"),
        ({"role": "king"}, "is not a role"),
        ({"days": "-1"}, "not a number of days"),
        ({"days": "soon"}, "not a number of days"),
        ({"requests_per_minute": "many"}, "not a whole number"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(service: TestClient, change: dict[str, str], told: str) -> None:
    """Nothing is made, and what was typed stays."""
    admin = with_key(service, key_of(service, OURS))
    before = len(admin.get(f"{API}/keys").json()["items"])
    answer = admin.post("/keys", data={"name": "x", "role": "viewer"} | change, headers=PAGE)
    assert (answer.status_code, told in answer.text) == (422, True)
    assert len(admin.get(f"{API}/keys").json()["items"]) == before


def test_others_than_administrators_see_no_keys(service: TestClient) -> None:
    """Not even their names."""
    operator = with_key(service, key_of(service, OURS, Scope.READ, Scope.PLAN, Scope.OPERATE))
    assert operator.get("/keys", headers=PAGE).status_code == 403
    assert operator.post("/keys", data={"name": "x", "role": "admin"}, headers=PAGE).status_code == 403
