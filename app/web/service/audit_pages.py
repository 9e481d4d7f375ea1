"""The page of the audit log."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.access import audit
from app.access.audit import AuditFilter
from app.resources import service_of
from app.web.error_pages import PageRoute
from app.web.rendering import page

_ENTRIES: Final = 100

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/audit")
def audit_list(request: Request, actor: str = "", subject: str = "", cursor: str | None = None) -> Response:
    """Who changed, approved or deleted what, newest first."""
    which = AuditFilter(actor=actor or None, subject=subject or None)
    with service_of(request).read_sessions() as session:
        found = audit.list_entries(session, which=which, limit=_ENTRIES, cursor=cursor)
    further = found.next_cursor and request.url.include_query_params(cursor=found.next_cursor)
    return page(
        request,
        "audit.html",
        entries=found.items,
        actor=actor,
        subject=subject,
        next_page=further and f"{further.path}?{further.query}",
    )
