"""The page about what other hardware or settings would bring to a plan."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from app.documents.reading import problems_of, read_document
from app.documents.sensitivity import USUAL_S, SensitivityRequest
from app.presentation.sensitivity import (
    EFFECT_COLUMNS,
    FRONT_COLUMNS,
    effect_cells,
    front_cells,
    sensitivity_headline,
    sensitivity_notes,
)
from app.resources import service_of
from app.services.errors import NotReady
from app.services.planning import plans
from app.services.planning.sensitivity import sensitivity_of
from app.web.error_pages import PageRoute
from app.web.forms import FormProblem, Typed, number, sentence_of
from app.web.kept_pages import answer_page
from app.web.listing import plan_line
from app.web.origin import sent_form
from app.web.rendering import page
from cluster_models.errors import InvalidInput
from cluster_models.training.sensitivity import Sensitivity

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/plans/{plan_id}/sensitivity")
def ask(request: Request, plan_id: str) -> Response:
    """The form, with the usual time to search."""
    return _page(request, plan_id, {"time_limit_s": f"{USUAL_S:g}"}, (), None)


@router.post("/plans/{plan_id}/sensitivity")
def answer(request: Request, plan_id: str, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Plans by number of GPUs and effects of changes, or what is wrong with the request."""
    values: Typed = {"time_limit_s": str(data.get("time_limit_s", ""))}
    result: Sensitivity | None = None
    found: tuple[FormProblem, ...] = ()
    try:
        given = {name: number(text) for name, text in values.items() if text.strip()}
        asked = read_document(SensitivityRequest, given, what="sensitivity")
        sessions = service_of(request).read_sessions
        result = sensitivity_of(sessions, plan_id=plan_id, time_limit_s=asked.time_limit_s)
    except InvalidInput as error:
        found = tuple(FormProblem("time_limit_s", "Time", sentence_of(each)) for each in problems_of(error))
    except NotReady as error:
        found = (FormProblem("", "", str(error)),)
    return _page(request, plan_id, values, found, result)


def _page(
    request: Request, plan_id: str, values: Typed, found: tuple[FormProblem, ...], result: Sensitivity | None
) -> Response:
    with service_of(request).read_sessions() as session:
        record = plans.get_plan(session, plan_id=plan_id)
    possible = [effect for effect in result.effects if effect.obstacle is None] if result else []
    show = page if result is None else answer_page
    return show(
        request,
        "sensitivity.html",
        status=422 if found else 200,
        plan=plan_line(record),
        values=values,
        found=found,
        headline=sensitivity_headline(result) if result else "",
        front_columns=FRONT_COLUMNS,
        front=[front_cells(plan) for plan in result.front] if result else [],
        effect_columns=EFFECT_COLUMNS,
        effects=[effect_cells(effect, result.fastest) for effect in possible] if result else [],
        notes=list(sensitivity_notes(result)) if result else [],
    )
