"""Pages that ask for a plan of training."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.db.status import PlanKind
from app.documents.reading import problems_of
from app.documents.workload import WorkloadDocument
from app.resources import service_of
from app.services.calibration import calibrations
from app.services.clusters import clusters
from app.services.errors import NotFound
from app.services.experts import routing
from app.services.pagination import MAX_LIMIT
from app.services.planning import models, plans
from app.web.error_pages import PageRoute
from app.web.examples import plan_examples, with_example
from app.web.forms import FormProblem, Typed
from app.web.origin import sent_form
from app.web.planning.choices import choices, shipped_frameworks
from app.web.planning.form import at_fields, blank, filled, label, open_parts
from app.web.planning.outlook import FormOutlook, prefilled
from app.web.planning.plan_form import PlanForm, cluster_again, model_again
from app.web.planning.plan_request import plan_request
from app.web.planning.plan_routing import asked_routing, routing_before
from app.web.rendering import page
from cluster_models.errors import InvalidInput
from cluster_models.model.catalogue import catalogue_models

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
    values = FORM.empty(service)
    values |= {"cluster": cluster, "calibration": calibration}
    with service.read_sessions() as session:
        kind = plans.get_plan(session, plan_id=again).kind if again else PlanKind.TRAINING
        if kind in {PlanKind.SERVING, PlanKind.REINFORCEMENT}:
            return RedirectResponse(f"/plans/new/{kind}?again={again}", 303)
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
    return FORM.send(request, data)


@router.post("/plans/new/outlook")
def look_ahead(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """The form as it was sent, with what can be said before a search; nothing is stored."""
    return FORM.look_ahead(request, data)


@router.post("/plans/try/{story}")
def try_story(request: Request, story: str) -> Response:
    """Queue the plan of a shipped story."""
    if story not in {known.name for known in plan_examples(serving=False)}:
        raise NotFound("story", story)
    service = service_of(request)
    values = with_example(FORM.empty(service), story, filled, serving=False)
    return RedirectResponse(f"/plans/{FORM.create(service, values)}", 303)


def _at_fields(error: InvalidInput, values: Typed) -> tuple[FormProblem, ...]:
    counts = "routing" if values["routing"] or not values["routing_text"].strip() else "routing_text"
    return at_fields(problems_of(error), counts=counts)


def _form(
    request: Request,
    session: Session,
    values: Typed,
    found: tuple[FormProblem, ...],
    seen: FormOutlook | None = None,
) -> Response:
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
        opened=open_parts(values, found),
        label=label,
    )


def _asked_before(session: Session, values: Typed, plan_id: str) -> Typed:
    """The form as it was filled for an earlier plan; a model without a name comes back as its numbers."""
    record = plans.get_plan(session, plan_id=plan_id)
    problem = plans.get_problem(session, plan_id=plan_id)
    values = filled(values, WorkloadDocument.from_value(problem.workload).model_dump(mode="json"))
    values |= {"time_limit_s": f"{record.options.time_limit_s:g}", "effort": str(record.options.effort)}
    values["calibration"] = "" if problem.fitted is None else problem.fitted.source.partition(" ")[0]
    values |= routing_before(session, problem)
    return (
        values | model_again(problem.architecture) | cluster_again(session, record.cluster_name, problem.snapshot)
    )


FORM: Final = PlanForm(
    route="new_plan",
    blank=blank,
    request_of=plan_request,
    label=label,
    at_fields=_at_fields,
    page=_form,
)
