"""Pages of plans."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.db.engine import transaction
from app.db.status import PlanKind
from app.documents.cluster import ClusterDocument
from app.documents.model import ModelDocument
from app.documents.reading import problems_of
from app.documents.workload import WorkloadDocument
from app.exports.options import options_of
from app.resources import Service, service_of
from app.services.calibration import calibrations
from app.services.clusters import clusters
from app.services.errors import NotFound
from app.services.experts import routing
from app.services.pagination import MAX_LIMIT
from app.services.planning import models, plans
from app.web.error_pages import PageRoute
from app.web.examples import plan_examples, with_example
from app.web.listing import plan_line
from app.web.origin import sent_form
from app.web.planning.asked import plan_request
from app.web.planning.choices import choices, shipped_frameworks
from app.web.planning.exports import Exports, exports_of, given_options, option_label, preview_of
from app.web.planning.fleet_pages import fleet_plan_page
from app.web.planning.form import (
    FormProblem,
    Typed,
    at_fields,
    blank,
    degrees_in_use,
    description_in_use,
    filled,
    label,
    placement_in_use,
    routing_in_use,
    settings_in_use,
    typed,
)
from app.web.planning.plan_routing import asked_routing, routing_before
from app.web.planning.progress import progress_now
from app.web.planning.result import nothing_fits, result
from app.web.planning.schedule import ZOOMS, Window
from app.web.planning.search_course import search_course
from app.web.planning.serving_plan_pages import serving_plan_page
from app.web.rendering import page
from cluster_models.errors import InvalidInput
from cluster_models.model.catalogue import catalogue_models
from cluster_models.training.plan import NoPlan, Plan

PAGE: Final = 50
MOST_GIVEN_BACK: Final = 2_000_000
"""Characters of a box that a form with mistakes gives back."""

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/plans")
def plan_list(request: Request, cursor: str | None = None, find: str = "") -> Response:
    """All plans, newest first, or those of the newest that have all the words of ``find``."""
    limit = MAX_LIMIT if find.strip() else PAGE
    with service_of(request).read_sessions() as session:
        found = plans.list_plans(session, limit=limit, cursor=cursor)
    more = urlencode(
        {"cursor": found.next_cursor or "", "find": find} if find else {"cursor": found.next_cursor or ""}
    )
    return page(
        request,
        "plans.html",
        plans=[line for plan in found.items if (line := plan_line(plan)).matches(find)],
        searched=find.strip(),
        looked_at=limit,
        next_page=found.next_cursor and f"/plans?{more}",
    )


@router.get("/plans/new")
def new_plan(
    request: Request,
    example: str = "",
    cluster: str = "",
    calibration: str = "",
    statistics: str = "",
    again: str = "",
) -> Response:
    """The empty form, or one with an example, a cluster, a calibration, routing, or those of an earlier plan."""
    service = service_of(request)
    values = blank(time_limit_s=service.settings.default_time_limit_s)
    values |= {"cluster": cluster, "calibration": calibration}
    with service.read_sessions() as session:
        if again and plans.get_plan(session, plan_id=again).kind is PlanKind.SERVING:
            return RedirectResponse(f"/plans/new/serving?again={again}", 303)
        if statistics:
            values |= asked_routing(session, statistics)
        if again:
            values = _asked_before(session, values, again)
        values = with_example(values, example, filled, serving=False)
        return _form(request, session, values, ())


@router.post("/plans/new")
def ask_for_plan(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Queue the plan that was asked for, or show what is wrong with the request."""
    service = service_of(request)
    values, found = typed(data, blank(time_limit_s=service.settings.default_time_limit_s))
    if not found:
        try:
            plan_id = _create(service, values)
        except InvalidInput as error:
            counts = "routing" if values["routing"] or not values["routing_text"].strip() else "routing_text"
            found = at_fields(problems_of(error), counts=counts)
        except NotFound as error:
            found = (FormProblem("cluster", "Stored cluster", str(error)),)
        else:
            service.queue_plan(plan_id)
            return RedirectResponse(f"/plans/{plan_id}", 303)
    with service.read_sessions() as session:
        return _form(request, session, values, found)


@router.post("/plans/try/{story}")
def try_story(request: Request, story: str) -> Response:
    """Queue the plan of a shipped story."""
    if story not in {known.name for known in plan_examples(serving=False)}:
        raise NotFound("story", story)
    service = service_of(request)
    values = with_example(blank(time_limit_s=service.settings.default_time_limit_s), story, filled, serving=False)
    plan_id = _create(service, values)
    service.queue_plan(plan_id)
    return RedirectResponse(f"/plans/{plan_id}", 303)


@router.get("/plans/{plan_id}")
def plan(request: Request, plan_id: str, replica: int = 0, zoom: int = 1, part: int = 0) -> Response:
    """A plan: its progress while it is searched for, then what came out."""
    with service_of(request).read_sessions() as session:
        record = plans.get_plan(session, plan_id=plan_id)
        if record.kind is PlanKind.SERVING:
            return serving_plan_page(request, session, record)
        if record.kind is PlanKind.FLEET:
            return fleet_plan_page(request, session, record)
        answer = plans.get_result(session, plan_id=plan_id)
        problem = plans.get_problem(session, plan_id=plan_id)
        ahead = plans.count_ahead(session, plan=record)
    window = Window(replica, zoom, part)
    exports, found = _exports(request, plan_id, answer) if isinstance(answer, Plan) else (None, ())
    return page(
        request,
        "plan.html",
        status=422 if found else 200,
        plan=plan_line(record),
        zooms=ZOOMS,
        progress=progress_now(record, datetime.now(UTC), ahead=ahead) if record.is_open else None,
        result=result(answer, problem.workload, problem.snapshot.cluster, window)
        if isinstance(answer, Plan)
        else None,
        course=search_course(record.course),
        nothing=nothing_fits(answer) if isinstance(answer, NoPlan) else None,
        failure=record.error,
        exports=exports,
        found=found,
    )


@router.get("/plans/{plan_id}/progress")
def plan_progress(request: Request, plan_id: str) -> Response:
    """The part of a plan's page that changes while it is searched for."""
    with service_of(request).read_sessions() as session:
        record = plans.get_plan(session, plan_id=plan_id)
        ahead = plans.count_ahead(session, plan=record)
    finished = {} if record.is_open else {"Plan-Finished": "yes"}
    now = progress_now(record, datetime.now(UTC), ahead=ahead)
    return page(request, "progress.html", headers=finished, plan=plan_line(record), progress=now)


@router.post("/plans/{plan_id}/cancel")
def cancel(request: Request, plan_id: str) -> Response:
    """Call off a plan."""
    with transaction(service_of(request).sessions) as session:
        plans.cancel_plan(session, plan_id=plan_id)
    return RedirectResponse(f"/plans/{plan_id}", 303)


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


def _create(service: Service, values: Typed) -> str:
    """Store what the form asks for; returns the id of the plan to be made."""
    with transaction(service.sessions) as session:
        return plans.submit_plan(
            session,
            request=plan_request(values),
            default_limit_s=service.settings.default_time_limit_s,
            max_limit_s=service.settings.max_time_limit_s,
        )


def _form(request: Request, session: Session, values: Typed, found: tuple[FormProblem, ...]) -> Response:
    for name, text in values.items():
        if isinstance(text, str) and len(text) > MOST_GIVEN_BACK:
            values = {**values, name: ""}
            found = (*found, FormProblem(name, label(name), "is too long to come back; choose its file again"))
    stored = clusters.list_clusters(session, limit=MAX_LIMIT)
    own_models = models.list_models(session, limit=MAX_LIMIT)
    own_routing = routing.list_routing(session, limit=MAX_LIMIT)
    own_calibrations = calibrations.list_calibrations(session, limit=MAX_LIMIT)
    return page(
        request,
        "new_plan.html",
        status=422 if found else 200,
        values=values,
        found=found,
        choices=choices(
            clusters=[record.name for record in stored.items],
            models=[*(record.name for record in own_models.items), *catalogue_models()],
            # One that was deleted stays in the list: choosing another must not happen by itself.
            calibrations=dict.fromkeys([*(each.name for each in own_calibrations.items), values["calibration"]]),
            routing=[each.name for each in own_routing.items],
            described={
                # Likewise one that is described no longer.
                values["framework"]: "that was chosen",
                **{name: each.name for each in own_calibrations.items for name in each.described},
            },
        ),
        shipped=shipped_frameworks(),
        examples=plan_examples(serving=False),
        degrees_open=degrees_in_use(values, found),
        placement_open=placement_in_use(values, found),
        settings_open=settings_in_use(values, found),
        description_open=description_in_use(values, found),
        routing_open=routing_in_use(values, found),
    )


def _asked_before(session: Session, values: Typed, plan_id: str) -> Typed:
    """The form as it was filled for an earlier plan; a model without a name comes back as its numbers."""
    record = plans.get_plan(session, plan_id=plan_id)
    problem = plans.get_problem(session, plan_id=plan_id)
    values = filled(values, WorkloadDocument.from_value(problem.workload).model_dump(mode="json"))
    values |= {"time_limit_s": f"{record.options.time_limit_s:g}", "effort": str(record.options.effort)}
    values["calibration"] = "" if problem.fitted is None else problem.fitted.source.partition(" ")[0]
    values |= routing_before(session, problem)
    name = problem.architecture.name
    if catalogue_models().get(name) == problem.architecture:
        values["model"] = name
    else:
        model = ModelDocument.from_architecture(problem.architecture)
        values["model_text"] = json.dumps(model.model_dump(mode="json", exclude_none=True), indent=2)
    try:
        return values | {"cluster": clusters.get_cluster(session, reference=record.cluster_name).name}
    except NotFound:  # it came with the request, or is gone
        snapshot = problem.snapshot
        document = ClusterDocument.from_cluster(snapshot.cluster, snapshot.samples)
        return values | {"cluster_text": json.dumps(document.model_dump(mode="json", exclude_defaults=True))}
