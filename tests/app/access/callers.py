"""A service with access control, and clients that hold keys of two tenants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from app.access import keys, tenants
from app.access.principals import Scope
from app.access.tenants import Quotas
from app.db.engine import transaction
from app.resources import Service
from app.settings import Access, Role
from tests.app.api_client import running

OURS, THEIRS = "ours", "theirs"


@contextmanager
def guarded(folder: Path, database_url: str, *, role: Role = Role.WEB) -> Iterator[TestClient]:
    """A client without a key, of a service that asks for one and has the tenants ``ours`` and ``theirs``."""
    with running(folder, database_url, role=role, access=Access.KEYS) as client:
        with transaction(service_of(client).sessions) as session:
            for name in (OURS, THEIRS):
                tenants.create_tenant(session, name=name, quotas=Quotas())
        yield client


def service_of(client: TestClient) -> Service:
    """The service behind a client, with the rows of all tenants."""
    app: Any = client.app
    service: Service = app.state.service
    return service


def key_of(client: TestClient, tenant: str, *scopes: Scope, **limits: Any) -> str:
    """A new key of a tenant; without scopes it has all of them."""
    with transaction(service_of(client).of_tenant(tenant).sessions) as session:
        return keys.create_key(session, name=f"key of {tenant}", scopes=scopes or tuple(Scope), **limits).text


def with_key(client: TestClient, key: str) -> TestClient:
    """Another client of the same service, which sends a key."""
    headers = {"Authorization": f"Bearer {key}"}
    return TestClient(client.app, base_url="http://localhost", headers=headers, raise_server_exceptions=False)
