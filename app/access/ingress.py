"""Signed messages of monitoring systems: the secret that signed one says whose it is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Depends, Path, Query, Request
from sqlalchemy import or_, select

from app.access.principals import NOBODY, Scope
from app.access.requests import principal_of, service_for
from app.db.replan_tables import EventSourceRow
from app.db.tables import ClusterRow
from app.events.signatures import NotVerified, verify
from app.resources import Service, service_of, whole_service_of
from app.services.errors import Forbidden, NotAuthentic


async def raw_body(request: Request) -> bytes:
    """The body to the byte, as it is signed."""
    return await request.body()


def service_of_sender(
    request: Request,
    cluster: Annotated[str, Path(max_length=200)],
    body: Annotated[bytes, Depends(raw_body)],
    source: Annotated[str | None, Query(max_length=100)] = None,
) -> Service:
    """The service as the tenant sees it whose key, or whose source's secret, a message carries.

    Raises ``Forbidden`` of a key that may not report, and ``NotAuthentic`` where nobody's secret fits.
    """
    principal = principal_of(request)
    if principal is not NOBODY:
        if Scope.OPERATE not in principal.scopes:
            raise Forbidden(Scope.OPERATE)
        return service_of(request)
    return service_for(request, _sender(request, cluster, source, body))


def _sender(request: Request, cluster: str, source: str | None, body: bytes) -> str:
    """The tenant of the source that sent a message; raises ``NotAuthentic``."""
    query = (
        select(EventSourceRow)
        .join(ClusterRow, ClusterRow.id == EventSourceRow.cluster_id)
        .where(or_(ClusterRow.name == cluster, ClusterRow.id == cluster))
        .where(or_(EventSourceRow.name == source, EventSourceRow.id == source))
    )
    with whole_service_of(request).read_sessions() as session:
        for row in session.scalars(query):
            try:
                verify(request.headers, body, row.secret, datetime.now(UTC))
            except NotVerified:
                continue
            return row.tenant_id
    raise NotAuthentic(source or "a source of this cluster")
