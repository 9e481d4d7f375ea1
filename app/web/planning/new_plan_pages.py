"""Pages that ask for a plan of training."""

from __future__ import annotations

import json
from typing import Annotated, Final

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
from app.resources import Service, service_of
from app.services.calibration import calibrations
from app.services.clusters import clusters
from app.services.errors import NotFound
from app.services.experts import routing
from app.services.pagination import MAX_LIMIT
from app.services.planning import models, plans
from app.web.error_pages import PageRoute
from app.web.examples import plan_examples, with_example
from app.web.origin import sent_form
from app.web.planning.choices import choices, shipped_frameworks
from app.web.planning.form import (
    FormProblem,
    Typed,
    at_fields,
    blank,
    degrees_in_use,
    description_in_use,
    filled,
    label,
    more_in_use,
    placement_in_use,
    routing_in_use,
    settings_in_use,
    typed,
)
from app.web.planning.outlook import FormOutlook, form_outlook, prefilled
from app.web.planning.plan_request import plan_request
from app.web.planning.plan_routing import asked_routing, routing_before
from app.web.rendering import page
from cluster_models.errors import InvalidInput
from cluster_models.model.catalogue import catalogue_models

MOST_GIVEN_BACK: Final = 2_000_000
"""Characters of a box that a form with mistakes gives back."""

router = APIRouter(route_class=PageRoute, include_in_schema=False)


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
        values = prefilled(values, {name: request.query_params.getlist(name) for name in request.query_params})
        return _form(request, session, values, ())


@router.post("/plans/new")
def ask_for_plan(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Queue the plan that was asked for, or show what is wrong with the request."""
    service = service_of(request)
    values, found = typed(data, blank(time_limit_s=service.settings.default_time_limit_s))
    if not found:
        try:
            plan_id = _create(service, values)
        except (InvalidInput, NotFound) as error:
            found = _at_fields(error, values)
        else:
            service.queue_plan(plan_id)
            return RedirectResponse(f"/plans/{plan_id}", 303)
    with service.read_sessions() as session:
        return _form(request, session, values, found)


@router.post("/plans/new/outlook")
def look_ahead(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """The form as it was sent, with what can be said before a search; nothing is stored."""
    service = service_of(request)
    empty = blank(time_limit_s=service.settings.default_time_limit_s)
    values, found = typed(data, empty)
    seen: FormOutlook | None = None
    if not found:
        form = request.url_for("new_plan")
        try:
            seen = form_outlook(service.sessions, plan_request(values), values, empty=empty, form=form)
        except (InvalidInput, NotFound) as error:
            found = _at_fields(error, values)
    with service.read_sessions() as session:
        return _form(request, session, values, found, seen)


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


def _create(service: Service, values: Typed) -> str:
    """Store what the form asks for; returns the id of the plan to be made."""
    with transaction(service.sessions) as session:
        return plans.submit_plan(
            session,
            request=plan_request(values),
            default_limit_s=service.settings.default_time_limit_s,
            max_limit_s=service.settings.max_time_limit_s,
        )


def _at_fields(error: InvalidInput | NotFound, values: Typed) -> tuple[FormProblem, ...]:
    if isinstance(error, NotFound):
        return (FormProblem("cluster", "Stored cluster", str(error)),)
    counts = "routing" if values["routing"] or not values["routing_text"].strip() else "routing_text"
    return at_fields(problems_of(error), counts=counts)


def _form(
    request: Request,
    session: Session,
    values: Typed,
    found: tuple[FormProblem, ...],
    seen: FormOutlook | None = None,
) -> Response:
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
        seen=seen,
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
        more_open=more_in_use(values, found) or description_in_use(values, found),
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
