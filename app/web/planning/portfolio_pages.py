"""Pages of portfolios: several plans as one answer."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import FormData

from app.access.admission import refuse_full_queue
from app.db.engine import transaction
from app.presentation.portfolios import MEMBER_COLUMNS, head_words, member_cells, portfolio_words
from app.presentation.recovery import moment
from app.resources import service_of
from app.services.planning import portfolios
from app.services.planning.portfolios import MOST_MEMBERS, MemberRecord
from app.web.error_pages import PageRoute
from app.web.origin import sent_form
from app.web.rendering import page
from cluster_models.errors import InvalidInput
from cluster_models.wording import joined

_SHOWN: Final = 50
_COUNTS: Final = re.compile(r"\d{1,6}([\s,;]+\d{1,6})*")

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.post("/plans/{plan_id}/portfolio")
def ask_for_portfolio(request: Request, plan_id: str, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Ask for the plan again on several numbers of GPUs."""
    service, text = service_of(request), str(data.get("gpus") or "").strip()
    gpus = sorted({int(each) for each in re.findall(r"\d+", text)} - {0}) if _COUNTS.fullmatch(text) else []
    if not 2 <= len(gpus) <= MOST_MEMBERS:
        raise InvalidInput(
            "gpus", text[:100], "are not numbers of GPUs", f"give 2 to {MOST_MEMBERS}, as in 8, 16, 32"
        )
    with transaction(service.sessions) as session:
        portfolio_id = portfolios.create_curve(session, plan_id=plan_id, gpus=gpus)
        refuse_full_queue(request, session)
        head = portfolios.get_head(session, portfolio_id=portfolio_id)
    for waiting in head.waiting:
        service.queue_plan(waiting)
    return RedirectResponse(f"/portfolios/{portfolio_id}", 303)


@router.get("/portfolios")
def portfolio_list(request: Request, cursor: str | None = None) -> Response:
    """Portfolios, newest first."""
    with service_of(request).read_sessions() as session:
        found = portfolios.list_portfolios(session, limit=_SHOWN, cursor=cursor)
    return page(
        request,
        "portfolios.html",
        portfolios=[
            (head, joined(head.subjects), moment(head.created_at), head_words(head)) for head in found.items
        ],
        next_page=found.next_cursor and f"/portfolios?cursor={found.next_cursor}",
    )


@router.get("/portfolios/{portfolio_id}")
def portfolio(request: Request, portfolio_id: str) -> Response:
    """Plans that came out so far, and one proof for all."""
    with service_of(request).read_sessions() as session:
        found = portfolios.get_portfolio(session, portfolio_id=portfolio_id)
    return page(
        request,
        "portfolio.html",
        head=found.head,
        subjects=joined(found.head.subjects),
        head_words=head_words(found.head),
        words=portfolio_words(found),
        columns=MEMBER_COLUMNS,
        rows=[(each.plan_id, _cells(each)) for each in found.members],
    )


@router.get("/portfolios/{portfolio_id}/progress")
def portfolio_progress(request: Request, portfolio_id: str) -> Response:
    """The part of the page that changes while plans are made."""
    with service_of(request).read_sessions() as session:
        head = portfolios.get_head(session, portfolio_id=portfolio_id)
    ended = {} if head.is_open else {"Plan-Finished": "yes"}
    return page(request, "portfolio_progress.html", headers=ended, head=head, head_words=head_words(head))


@router.post("/portfolios/{portfolio_id}/cancel")
def cancel_portfolio(request: Request, portfolio_id: str) -> Response:
    """Call off the plans that wait or run."""
    with transaction(service_of(request).sessions) as session:
        portfolios.cancel_portfolio(session, portfolio_id=portfolio_id)
    return RedirectResponse(f"/portfolios/{portfolio_id}", 303)


def _cells(member: MemberRecord) -> tuple[str, ...]:
    figures = member.gpus, member.step_s, member.tokens_per_s
    return member_cells(member.name, member.status, figures, member.best, member.proof.gap)
