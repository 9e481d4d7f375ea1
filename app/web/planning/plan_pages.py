"""Pages of plans."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session

from app.db.engine import transaction
from app.db.status import PlanKind
from app.exports.options import options_of
from app.kept import Kept
from app.resources import service_of
from app.services.pagination import MAX_LIMIT
from app.services.planning import plans
from app.services.planning.plans import PlanRecord
from app.web.error_pages import PageRoute
from app.web.forms import FormProblem
from app.web.listing import PlanLine, plan_head, plan_line, plan_lines
from app.web.planning.exports import Exports, exports_of, given_options, option_label, preview_of
from app.web.planning.fleet_pages import fleet_plan_page
from app.web.planning.progress import ProgressNow, progress_now
from app.web.planning.reinforcement_pages import reinforcement_plan_page
from app.web.planning.result import nothing_fits, result
from app.web.planning.schedule import ZOOMS, Window
from app.web.planning.search_course import search_course
from app.web.planning.serving_plan_pages import serving_plan_page
from app.web.rendering import answer_of, page, person_of, text_of
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import NoPlan, Plan

PAGE: Final = 50
_ENDED: Final = Kept[tuple[str, ...], tuple[str, int]](16)
"""Pages of plans that have ended: that of 1,024 nodes takes half a second and has 0.7 MB."""

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/plans")
def plan_list(request: Request, cursor: str | None = None, find: str = "") -> Response:
    """All plans, newest first, or those of the newest that have all the words of ``find``."""
    limit = MAX_LIMIT if find.strip() else PAGE
    with service_of(request).read_sessions() as session:
        found = plans.list_plans(session, limit=limit, cursor=cursor)
        lines = plan_lines(session, found.items)
    more = urlencode(
        {"cursor": found.next_cursor or "", "find": find} if find else {"cursor": found.next_cursor or ""}
    )
    return page(
        request,
        "plans.html",
        plans=[line for line in lines if line.matches(find)],
        searched=find.strip(),
        looked_at=limit,
        next_page=found.next_cursor and f"/plans?{more}",
    )


@router.get("/plans/{plan_id}")
def plan(request: Request, plan_id: str, replica: int = 0, zoom: int = 1, part: int = 0) -> Response:
    """A plan: its progress while it is searched for, then what came out."""
    with service_of(request).read_sessions() as session:
        record = plans.get_plan(session, plan_id=plan_id)
        progress = _progress(session, record) if record.is_open else None
        if record.kind is PlanKind.SERVING:
            return serving_plan_page(request, session, record, progress)
        if record.kind is PlanKind.FLEET:
            return fleet_plan_page(request, session, record, progress)
        if record.kind is PlanKind.REINFORCEMENT:
            return reinforcement_plan_page(request, session, record, progress)
        head, window = plan_head(session, record), Window(replica, zoom, part)

        def make() -> tuple[str, int]:
            return _plan_text(request, session, record, head, window, progress)

        if record.is_open:
            text, status = make()
        else:
            key = (plan_id, str(request.query_params), head.cluster_address, person_of(request))
            text, status = _ENDED.get(key, make)
    return answer_of(text, status=status)


def _plan_text(
    request: Request,
    session: Session,
    record: PlanRecord,
    head: PlanLine,
    window: Window,
    progress: ProgressNow | None,
) -> tuple[str, int]:
    """The page of a plan of training, and its status."""
    answer = plans.get_result(session, plan_id=record.id)
    workload, cluster = plans.get_subject(session, plan_id=record.id)
    exports, found = _exports(request, record.id, answer) if isinstance(answer, Plan) else (None, ())
    text = text_of(
        request,
        "plan.html",
        plan=head,
        zooms=ZOOMS,
        progress=progress,
        result=result(answer, workload, cluster, window) if isinstance(answer, Plan) else None,
        course=search_course(record.course),
        nothing=nothing_fits(answer) if isinstance(answer, NoPlan) else None,
        failure=record.error,
        exports=exports,
        found=found,
    )
    return text, 422 if found else 200


@router.get("/plans/{plan_id}/progress")
def plan_progress(request: Request, plan_id: str) -> Response:
    """The part of a plan's page that changes while it is searched for."""
    with service_of(request).read_sessions() as session:
        record = plans.get_plan(session, plan_id=plan_id)
        now = _progress(session, record)
    finished = {} if record.is_open else {"Plan-Finished": "yes"}
    return page(request, "progress.html", headers=finished, plan=plan_line(record), progress=now)


@router.post("/plans/{plan_id}/cancel")
def cancel(request: Request, plan_id: str) -> Response:
    """Call off a plan."""
    with transaction(service_of(request).sessions) as session:
        plans.cancel_plan(session, plan_id=plan_id)
    return RedirectResponse(f"/plans/{plan_id}", 303)


@router.post("/plans/{plan_id}/stop")
def stop(request: Request, plan_id: str) -> Response:
    """End a search with the best plan so far."""
    with transaction(service_of(request).sessions) as session:
        plans.stop_plan(session, plan_id=plan_id)
    return RedirectResponse(f"/plans/{plan_id}", 303)


def _progress(session: Session, record: PlanRecord) -> ProgressNow:
    return progress_now(record, datetime.now(UTC), ahead=plans.count_ahead(session, plan=record))


def _exports(request: Request, plan_id: str, answer: Plan) -> tuple[Exports, tuple[FormProblem, ...]]:
    """The formats of a plan with the options in the address, and what is wrong with these."""
    given = given_options(request.query_params)
    try:
        options_of(given)
    except InvalidInput as error:
        name = error.field.removeprefix("options.")
        problem = FormProblem(name, option_label(name), f"{error.problem}; {error.remedy}".rstrip("; "))
        return exports_of(plan_id, answer, given, {}), (problem,)
    exports = exports_of(plan_id, answer, given, given)
    preview = preview_of(plan_id, answer, request.query_params.get("preview", ""), given)
    return replace(exports, preview=preview), ()
