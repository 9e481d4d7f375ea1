"""Answers to forms as pages with an address, which reloads, goes back and can be sent to others."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from app.db.engine import transaction
from app.presentation.recovery import moment
from app.resources import service_of
from app.services import kept_pages
from app.web.error_pages import PageRoute
from app.web.rendering import page, text_of

_FRAME: Final = "kept_content.html"

router = APIRouter(route_class=PageRoute, include_in_schema=False)


def answer_page(request: Request, template: str, *, status: int = 200, **values: object) -> Response:
    """The way to the page that ``template`` makes of ``values``, now kept; a mistake is shown and not kept."""
    if status != 200:
        return page(request, template, status=status, headers=None, **values)
    with transaction(service_of(request).sessions) as session:
        page_id = kept_pages.keep(session, text_of(request, template, frame=_FRAME, **values))
    return RedirectResponse(f"/answers/{page_id}", 303)


@router.get("/answers/{page_id}")
def kept(request: Request, page_id: str) -> Response:
    """The answer as it was."""
    with service_of(request).read_sessions() as session:
        text, made_at = kept_pages.kept_page(session, page_id=page_id)
    title, _, content = text.partition("\n")
    return page(
        request, "kept.html", title=title, content=content, made=moment(made_at), most=kept_pages.MOST_PAGES
    )
