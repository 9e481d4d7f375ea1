"""Pages of fleet plans: the form of a new one, and what came out."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.documents.reading import parse_text, read_document
from app.presentation.fleet import (
    CURVE_COLUMNS,
    SHARE_COLUMNS,
    curve_cells,
    headline,
    proof,
    refusal,
    share_cells,
)
from app.resources import service_of
from app.services.clusters import clusters
from app.services.pagination import MAX_LIMIT
from app.services.planning import fleet_plans
from app.services.planning.plans import PlanRecord
from app.services.planning.requests import FleetDocument, FleetPlanRequest, OptionsDocument
from app.web.error_pages import PageRoute
from app.web.listing import plan_head
from app.web.origin import sent_form
from app.web.planning.progress import ProgressNow
from app.web.planning.text_forms import ask_for_plan, example_text
from app.web.rendering import page
from cluster_models.fleet.plan import FleetPlan, NoFleetPlan

EXAMPLE: Final = "fleets/three-jobs.yaml"

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/plans/new/fleet")
def new_fleet_plan(request: Request, cluster: str = "") -> Response:
    """The form with an example."""
    return _form(request, {"cluster": cluster, "fleet_text": example_text(EXAMPLE), "time_limit_s": "120"})


@router.post("/plans/new/fleet")
def ask_for_fleet_plan(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Queue the fleet plan that was asked for, or show what is wrong with the request."""
    values = {name: str(data.get(name, "")) for name in ("cluster", "fleet_text", "time_limit_s")}

    def read() -> FleetPlanRequest:
        asked = read_document(FleetDocument, parse_text(values["fleet_text"], what="fleet"), what="fleet")
        limit = parse_text(values["time_limit_s"] or "null", what="time limit")
        options = read_document(OptionsDocument, {"time_limit_s": limit}, what="options")
        return FleetPlanRequest(cluster=values["cluster"], options=options, **dict(asked))

    answer = ask_for_plan(service_of(request), read)
    return _form(request, values, answer) if isinstance(answer, list) else answer


def fleet_plan_page(
    request: Request, session: Session, record: PlanRecord, progress: ProgressNow | None
) -> Response:
    """A fleet plan: its progress while it is searched for, then what came out."""
    answer = fleet_plans.get_fleet_result(session, plan_id=record.id)
    found = answer if isinstance(answer, FleetPlan) else None
    return page(
        request,
        "fleet_plan.html",
        plan=plan_head(session, record),
        progress=progress,
        headline=headline(found) if found else "",
        proof=proof(found) if found else "",
        columns=SHARE_COLUMNS,
        shares=[share_cells(share) for share in found.shares] if found else [],
        nodes=[(share.job, ", ".join(share.nodes)) for share in found.shares] if found else [],
        curve_columns=CURVE_COLUMNS,
        curves=[curve_cells(point) for point in answer.curves] if answer else [],
        nothing=refusal(answer) if isinstance(answer, NoFleetPlan) else None,
        failure=record.error,
    )


def _form(request: Request, values: dict[str, str], problems: list[str] | None = None) -> Response:
    with service_of(request).read_sessions() as session:
        stored = clusters.list_clusters(session, limit=MAX_LIMIT)
    return page(
        request,
        "new_fleet_plan.html",
        status=422 if problems else 200,
        values=values,
        found=(),
        problems=problems or [],
        clusters=[(record.name, record.name) for record in stored.items],
    )
