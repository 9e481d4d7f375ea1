"""Pages of sweeps: which of many failures hurts most."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import FormData

from app.db.engine import transaction
from app.presentation.sweeps import IMPACT_COLUMNS, impact_cells, sweep_words
from app.resources import service_of
from app.services import idempotency
from app.services.decisions import sweeps
from app.services.decisions.sweeps import SweepStatus
from app.services.pagination import MAX_LIMIT
from app.web.error_pages import PageRoute
from app.web.origin import sent_form
from app.web.rendering import page

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.post("/clusters/{name:path}/what-if-sweeps")
def ask_for_sweep(request: Request, name: str, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Ask for a sweep of every place of a label; one that runs is found again."""
    each, now = str(data.get("each") or "node"), datetime.now(UTC)
    keyed = idempotency.keyed("what-if sweep form", f"{name}\n{each}")
    with transaction(service_of(request).sessions) as session:
        sweep_id = sweeps.create_sweep(
            session, reference=name, each=each, failures=(), now=now, keyed=keyed, only_open=True
        )
    return RedirectResponse(f"/what-if-sweeps/{sweep_id}", 303)


@router.get("/what-if-sweeps/{sweep_id}")
def sweep(request: Request, sweep_id: str, cursor: str | None = None) -> Response:
    """How far a sweep is, and the failures that cost most."""
    with service_of(request).read_sessions() as session:
        record = sweeps.get_sweep(session, sweep_id=sweep_id)
        worst = sweeps.worst_failures(session, sweep_id=sweep_id, limit=MAX_LIMIT, cursor=cursor)
    return page(
        request,
        "what_if_sweep.html",
        sweep=record,
        address=f"/clusters/{quote(record.cluster_name, safe='')}",
        words=sweep_words(record),
        caption="The worst first",
        next_page=worst.next_cursor and f"/what-if-sweeps/{sweep_id}?cursor={worst.next_cursor}",
        columns=IMPACT_COLUMNS,
        rows=[
            impact_cells(each.name, each.losses, (each.must_move, each.not_covered, each.spares_used), each.error)
            for each in worst.items
        ],
    )


@router.get("/what-if-sweeps/{sweep_id}/progress")
def sweep_progress(request: Request, sweep_id: str) -> Response:
    """The part of the page that changes while answers come in."""
    with service_of(request).read_sessions() as session:
        record = sweeps.get_sweep(session, sweep_id=sweep_id)
    ended = {} if record.status is SweepStatus.RUNNING else {"Plan-Finished": "yes"}
    return page(request, "sweep_progress.html", headers=ended, sweep=record, words=sweep_words(record))


@router.post("/what-if-sweeps/{sweep_id}/cancel")
def cancel_sweep(request: Request, sweep_id: str) -> Response:
    """Call off what is not answered yet."""
    with transaction(service_of(request).sessions) as session:
        sweeps.cancel_sweep(session, sweep_id=sweep_id)
    return RedirectResponse(f"/what-if-sweeps/{sweep_id}", 303)
