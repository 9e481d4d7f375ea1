"""The service that commands speak to: the one that ``--server`` names, or one in this process on the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.cli.server import chosen_server
from app.client import Client, connect
from cluster_models.errors import InvalidInput

LOCAL = "http://localhost"


@contextmanager
def service(database_url: str | None = None, *, tenant: str | None = None) -> Iterator[Client]:
    """The chosen service; without one, a service in this process on the database that ``database_url`` names.

    Raises ``InvalidInput`` where both are named.
    """
    server = chosen_server()
    if server.address is None:
        with _local(database_url, tenant) as client:
            yield client
        return
    if database_url is not None:
        raise InvalidInput("--database-url", database_url, "contradicts --server", "give one of the two")
    with connect(server.address, key=server.key) as client:
        yield client


@contextmanager
def _local(database_url: str | None, tenant: str | None) -> Iterator[Client]:
    """A service that only this process can ask, with the rights of whoever may read the database.

    Raises ``NotFound`` where there is no such tenant.
    """
    from starlette.testclient import TestClient  # noqa: PLC0415 - with a server nothing of ours is served

    from app.access.tenants import get_tenant  # noqa: PLC0415 - see above
    from app.cli.environment import read_settings  # noqa: PLC0415 - see above
    from app.logs import warnings_only  # noqa: PLC0415 - see above
    from app.main import create_app  # noqa: PLC0415 - see above
    from app.settings import Access, Role  # noqa: PLC0415 - see above

    given = {} if database_url is None else {"database_url": database_url}
    settings = read_settings(**given, role=Role.WEB, access=Access.OPEN, allowed_hosts=("localhost",))
    app = create_app(settings, tenant=tenant or settings.tenant)
    with warnings_only(), TestClient(app, base_url=LOCAL) as http:
        with app.state.service.read_sessions() as session:
            get_tenant(session, name=tenant or settings.tenant)
        yield Client(http, retries=0)
