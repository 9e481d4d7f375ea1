"""The client: every operation of the API as a method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

import httpx2

from app.client.clusters import ClustersOperations
from app.client.failures import FailuresOperations
from app.client.jobs import JobsOperations
from app.client.planning import PlanningOperations
from app.client.service import ServiceOperations
from cluster_models.errors import InvalidInput

TIMEOUT_S: Final = 120.0
"""Some answers are worked out while the caller waits: fits, maps of experts, what-ifs."""

Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)


class Client(ClustersOperations, PlanningOperations, JobsOperations, FailuresOperations, ServiceOperations):
    """The operations of the description, by their names."""


class _Page(Protocol[Item_co]):
    @property
    def items(self) -> Sequence[Item_co]: ...

    @property
    def next_cursor(self) -> str | None: ...


def connect(server: str, *, key: str | None = None, timeout_s: float = TIMEOUT_S, retries: int = 3) -> Client:
    """A client of the service at ``server``, an address as ``http://planner.example:8080``; nothing is sent yet.

    ``key`` opens a service with access control.  Raises ``InvalidInput`` where ``server`` is no such address.
    """
    url = httpx2.URL(server)
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidInput("--server", server, "is not an address", "write it as http://planner.example:8080")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return Client(httpx2.Client(base_url=server.rstrip("/"), headers=headers, timeout=timeout_s), retries=retries)


def every(operation: Callable[..., _Page[Item]], *arguments: Any, **named: Any) -> Iterator[Item]:
    """Every entry of a list, page by page: ``every(service.list_plans, cluster="demo")``."""
    cursor: str | None = None
    while True:
        page = operation(*arguments, **named, cursor=cursor)
        yield from page.items
        if (cursor := page.next_cursor) is None:
            return
