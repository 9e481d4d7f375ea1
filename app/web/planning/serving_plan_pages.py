"""Pages of serving plans: the form of a new one, and what came out."""

from __future__ import annotations

import json
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.documents.model import ModelDocument
from app.documents.reading import problems_of
from app.documents.serving import ServingWorkloadDocument
from app.exports.options import options_of
from app.presentation.serving_refusal import nothing_serves
from app.resources import service_of
from app.services.calibration import calibrations
from app.services.clusters import clusters
from app.services.pagination import MAX_LIMIT
from app.services.planning import models, plans, serving_plans
from app.services.planning.plans import PlanRecord
from app.web.clusters.cluster import leaves
from app.web.error_pages import PageRoute
from app.web.examples import plan_examples, with_example
from app.web.forms import FormProblem, Typed, in_use
from app.web.listing import plan_head
from app.web.origin import sent_form
from app.web.planning.choices import pasted_or
from app.web.planning.exports import given_options, option_label
from app.web.planning.outlook import FormOutlook, prefilled
from app.web.planning.plan_form import PlanForm, cluster_again, model_again
from app.web.planning.progress import ProgressNow
from app.web.planning.serving_form import (
    CHOICES,
    LABELS,
    PINS,
    at_serving_fields,
    blank_serving,
    filled_serving,
    serving_request,
)
from app.web.planning.serving_result import serving_exports, serving_result
from app.web.rendering import page
from cluster_models.errors import InvalidInput
from cluster_models.model.catalogue import catalogue_models
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingPlan

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/plans/new/serving")
def new_serving_plan(request: Request, example: str = "", cluster: str = "", again: str = "") -> Response:
    """The empty form, or one with an example, a cluster, or an earlier plan's."""
    service = service_of(request)
    values = FORM.empty(service) | {"cluster": cluster}
    with service.read_sessions() as session:
        if again:
            values = _asked_before(session, values, again)
        values = with_example(values, example, filled_serving, serving=True)
        values = prefilled(values, {name: request.query_params.getlist(name) for name in request.query_params})
        return _form(request, session, values, ())


@router.post("/plans/new/serving")
def ask_for_serving_plan(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Queue the plan that was asked for, or show what is wrong with the request."""
    return FORM.send(request, data)


@router.post("/plans/new/serving/outlook")
def look_ahead_at_serving(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """The form as it was sent, with what can be said before a search; nothing is stored."""
    return FORM.look_ahead(request, data)


def serving_plan_page(
    request: Request, session: Session, record: PlanRecord, progress: ProgressNow | None
) -> Response:
    """A serving plan: its progress while it is searched for, then what came out."""
    answer = serving_plans.get_serving_result(session, plan_id=record.id)
    problem = serving_plans.get_serving_problem(session, plan_id=record.id)
    given = given_options(request.query_params)
    found = _wrong_options(given) if isinstance(answer, ServingPlan) else ()
    valid = {} if found else given
    exports = serving_exports(record.id, answer, given, valid) if isinstance(answer, ServingPlan) else None
    return page(
        request,
        "serving_plan.html",
        status=422 if found else 200,
        plan=plan_head(session, record),
        progress=progress,
        result=serving_result(answer, leaves(problem.snapshot.cluster))
        if isinstance(answer, ServingPlan)
        else None,
        nothing=nothing_serves(answer) if isinstance(answer, NoServingPlan) else None,
        failure=record.error,
        exports=exports,
        found=found,
    )


def _wrong_options(given: dict[str, str]) -> tuple[FormProblem, ...]:
    try:
        options_of(given)
    except InvalidInput as error:
        name = error.field.removeprefix("options.")
        return (FormProblem(name, option_label(name), f"{error.problem}; {error.remedy}".rstrip("; ")),)
    return ()


def _at_fields(error: InvalidInput, values: Typed) -> tuple[FormProblem, ...]:
    return at_serving_fields(problems_of(error), values)


def _form(
    request: Request,
    session: Session,
    values: Typed,
    found: tuple[FormProblem, ...],
    seen: FormOutlook | None = None,
) -> Response:
    stored = clusters.list_clusters(session, limit=MAX_LIMIT)
    own = models.list_models(session, limit=MAX_LIMIT)
    fitted = [each.name for each in calibrations.list_calibrations(session, limit=MAX_LIMIT).items]
    return page(
        request,
        "new_serving_plan.html",
        status=422 if found else 200,
        values=values,
        found=found,
        seen=seen,
        labels=LABELS,
        choices={
            **CHOICES,
            "clusters": pasted_or(record.name for record in stored.items),
            "calibration": (
                ("", "as shipped"),
                *((name, name) for name in dict.fromkeys([*fitted, values["calibration"]]) if name),
            ),
            "models": pasted_or([*(record.name for record in own.items), *catalogue_models()]),
        },
        pins=PINS,
        pins_open=in_use(values, found, "pinned."),
        examples=plan_examples(serving=True),
    )


def _asked_before(session: Session, values: Typed, plan_id: str) -> Typed:
    """The form as it was filled for an earlier plan; further models come back as text."""
    record = plans.get_plan(session, plan_id=plan_id)
    problem = serving_plans.get_serving_problem(session, plan_id=plan_id)
    first, *others = problem.models
    written = ServingWorkloadDocument.from_served(first, problem.goal).model_dump(mode="json")
    values = filled_serving(values, written)
    values |= {"time_limit_s": f"{record.options.time_limit_s:g}", "effort": str(record.options.effort)}
    values["calibration"] = "" if first.own is None else first.own.label.partition(" ")[0]
    values |= model_again(first.architecture) | cluster_again(session, record.cluster_name, problem.snapshot)
    if others:
        listed = [
            {
                "model": ModelDocument.from_architecture(each.architecture).model_dump(
                    mode="json", exclude_none=True
                ),
                "workload": ServingWorkloadDocument.from_served(each).model_dump(
                    mode="json", exclude_defaults=True
                ),
            }
            for each in others
        ]
        values["others_text"] = json.dumps(listed, indent=2)
    return values


FORM: Final = PlanForm(
    route="new_serving_plan",
    blank=blank_serving,
    request_of=serving_request,
    label=LABELS.__getitem__,
    at_fields=_at_fields,
    page=_form,
)
