"""Two tenants and every operation of the description: neither reads, changes or deletes anything of the other's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from app.access.admission import QUEUES_PLANS, STORES_SAMPLES
from app.access.principals import Scope
from app.access.rights import OPEN, RIGHTS, name_of, right_of
from app.db.tables import Base
from app.db.tenancy import Owned
from tests.app.access.callers import OURS, THEIRS, guarded, key_of, service_of, with_key
from tests.app.api.test_idempotency import MODEL
from tests.app.api_client import API, every_route, plan_body
from tests.app.failure_bodies import SITE, store_site
from tests.app.one_of_each import BODIES, one_of_each, operations

CATALOGUES = {"framework", "adapter", "format", "name"}
"""Parameters that name what ships with the product."""
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what is decided before anything is looked up."""


@pytest.fixture
def service(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A service that asks for keys."""
    with guarded(tmp_path, database_url) as client:
        yield client


def _rows(client: TestClient) -> dict[str, list[Any]]:
    """Everything that is stored for the tenant ``ours`` or hangs on that, but notes of when keys were used."""
    with service_of(client).read_sessions() as session:
        found = {}
        for name, table in Base.metadata.tables.items():
            if name in ("workers", "audit_log", "tenants"):
                continue
            where = f" WHERE tenant_id = '{OURS}'" if "tenant_id" in table.c else ""
            columns = ", ".join(column.name for column in table.c if column.name != "last_used_at")
            query = text(f"SELECT {columns} FROM {name}{where}")  # noqa: S608 - names of ours
            found[name] = sorted(map(repr, session.execute(query)))
    return found


def test_no_operation_reaches_what_is_another_tenants(service: TestClient) -> None:
    """Each is tried with ids of the other's things: it says that there are none, and nothing of theirs changes."""
    ours, theirs = (with_key(service, key_of(service, tenant)) for tenant in (OURS, THEIRS))
    made = one_of_each(ours)
    before, tried = _rows(service), 0
    for method, path, operation in operations(service):
        names = re.findall(r"{(\w+)}", path)
        name = operation["operationId"]
        known = {each: made.get(each, "plain") for each in names}
        address = re.sub(r"{(\w+)}", lambda found, known=known: known[found[1]], path)
        body = {"json": BODIES.get(name, {})} if method not in ("GET", "DELETE") else {}
        answer = theirs.request(method, address, **body)
        if set(names) - CATALOGUES or "routing/" in path:
            assert answer.status_code == 404, (method, path, answer.status_code, answer.text)
            tried += 1
        elif answer.status_code < 400:
            assert "secret" not in answer.text, (method, path, answer.text)
        assert not [
            each for each in made.values() if len(each) == 32 and each not in address and each in answer.text
        ]
        if method == "GET" and not names and '"items"' in answer.text:
            assert all("theirs" in str(item) for item in answer.json()["items"]), (path, answer.text)
    assert _rows(service) == before
    assert tried > 50


def test_names_and_contents_are_free_within_a_tenant(service: TestClient) -> None:
    """The same cluster, model, plan, snapshot and Idempotency-Key of two tenants are two things each."""
    clients = [with_key(service, key_of(service, tenant)) for tenant in (OURS, THEIRS)]
    again = {"Idempotency-Key": "nightly"}
    for client in clients:
        store_site(client)
        assert client.post(f"{API}/models", json={"name": "own", "model": MODEL}).status_code == 201
        assert client.post(f"{SITE}/snapshots").status_code in (200, 201)
        assert client.post(f"{SITE}/replans", json={}, headers=again).status_code in (200, 201, 202)
    first, second = (
        client.post(f"{API}/plans", json=plan_body(), headers=again).json()["id"] for client in clients
    )
    assert first != second
    for client, own, other in ((clients[0], first, second), (clients[1], second, first)):
        assert client.get(f"{API}/plans/{own}").status_code == 200
        assert client.get(f"{API}/plans/{other}").status_code == 404
        assert len(client.get(f"{API}/replans").json()["items"]) == 1
    snapshots = {client.get(f"{SITE}/snapshots").json()["items"][0]["id"] for client in clients}
    assert len(snapshots) == 1, "the content is the same, and so is its id"


@ON_SQLITE
def test_every_operation_refuses_without_its_scope(service: TestClient) -> None:
    """Without a key 401; with all scopes but the one that it needs 403; with that one alone neither."""
    without = {scope: with_key(service, key_of(service, OURS, *(set(Scope) - {scope}))) for scope in Scope}
    only = {scope: with_key(service, key_of(service, OURS, scope)) for scope in Scope}
    scopes = {operation["operationId"]: operation.get("security") for _, _, operation in operations(service)}
    for method, path, operation in operations(service):
        address = re.sub(r"{\w+}", "nothing", path.replace("{adapter}", "plain"))
        body = {"json": {}} if method not in ("GET", "DELETE") else {}
        right = next(right for name, right in RIGHTS.items() if name.endswith(f".{operation['operationId']}"))
        refused = service.request(method, address, **body)
        assert refused.status_code == 401, (method, path)
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
        if right.scope is None:
            continue
        forbidden = without[right.scope].request(method, address, **body)
        assert (forbidden.status_code, forbidden.json()["type"]) == (403, "/problems/insufficient-scope"), path
        assert f'scope="{right.scope}"' in forbidden.headers["WWW-Authenticate"]
        assert scopes[operation["operationId"]] == [{"key": [right.scope]}]
        assert only[right.scope].request(method, address, **body).status_code not in (401, 403), path


@ON_SQLITE
def test_every_route_declares_its_right(service: TestClient) -> None:
    """A route that is forgotten in the table fails here, and asks for an administrator until then."""
    app: Any = service.app
    routes = list(every_route(app.routes))
    assert {name_of(route.endpoint) for route in routes} == set(RIGHTS)
    assert set(RIGHTS) >= QUEUES_PLANS | STORES_SAMPLES, "a quota is checked on a route that is not there"
    assert len(routes) > 150
    assert right_of(test_every_route_declares_its_right).scope is Scope.ADMIN


@ON_SQLITE
def test_pages_ask_who_one_is(service: TestClient) -> None:
    """Whoever is not signed in is sent to do so, and no form does anything."""
    app: Any = service.app
    pages = [route for route in every_route(app.routes) if ".web." in route.endpoint.__module__]
    assert len(pages) > 40
    for route in pages:
        if right_of(route.endpoint) is OPEN:
            continue
        address = re.sub(r"{[^}]*}", "nothing", route.path)
        for method in route.methods:
            answer = service.request(method, address, headers={"accept": "text/html"}, follow_redirects=False)
            assert answer.status_code == (303 if method == "GET" else 401), (method, address)


def test_every_table_has_an_owner_or_hangs_on_one() -> None:
    """A new table either has a tenant of its own, or goes with the row of one that has."""
    owned = {mapper.local_table.name for mapper in Base.registry.mappers if issubclass(mapper.class_, Owned)}
    common = {"tenants", "workers"}
    for name, table in Base.metadata.tables.items():
        parents = {
            key.column.table.name
            for key in table.foreign_keys
            if key.ondelete == "CASCADE" and not key.parent.nullable
        }
        assert name in owned | common or parents & owned, name
