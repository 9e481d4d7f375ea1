"""Pages that show plans, or the own configuration, beside a plan."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.comparing.documents import ComparisonRequest
from app.comparing.standings import MOST_CONTENDERS
from app.db.status import PlanKind
from app.documents.quantities import token_count
from app.documents.reading import problems_of, read_document
from app.presentation.comparison import ComparisonReport, comparison_report
from app.resources import service_of
from app.services.errors import NotFound, NotReady
from app.services.pagination import MAX_LIMIT
from app.services.planning import plans
from app.services.planning.comparisons import compare_stored
from app.services.planning.plans import PlanRecord
from app.services.running import running_jobs, running_plans
from app.web.drawing import Drawing
from app.web.error_pages import PageRoute
from app.web.forms import FormProblem, Typed, number, sentence_of
from app.web.kept_pages import answer_page
from app.web.listing import plan_line
from app.web.origin import sent_form
from app.web.planning.waterfall import waterfall
from app.web.rendering import page
from cluster_models.errors import InvalidInput

_FIELDS: Final = {
    "launch": "Your configuration",
    "name": "Its name",
    "gpus": "GPUs",
    "tokens": "Tokens of the whole run",
    "usd_per_gpu_hour": "Price of a GPU-hour",
}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/plans/compare")
def stored_plans(
    request: Request, plan: Annotated[list[str], Query(max_length=MOST_CONTENDERS + 1)], running: str = ""
) -> Response:
    """Plans side by side, the first the one that the others are held against; ``running``: what a job runs by."""
    chosen = list(dict.fromkeys(plan))
    found: tuple[FormProblem, ...] = ()
    report: ComparisonReport | None = None
    falls: tuple[Drawing, ...] = ()
    service = service_of(request)
    with service.read_sessions() as session:
        lines = [plan_line(plans.get_plan(session, plan_id=each)) for each in chosen]
        runs = running_plans.get_running_plan(session, running_plan_id=running) if running else None
    others = [{"plan": line.id, "name": f"plan {number}"} for number, line in enumerate(lines[1:], start=2)]
    if runs is not None:
        others.append({"running_plan": runs.id, "name": "what runs"})
    if not others:
        found = (FormProblem("", "", "Two plans are needed: tick them in the list of plans."),)
    else:
        try:
            asked = read_document(ComparisonRequest, {"plan": chosen[0], "others": others}, what="comparison")
            base, standings = compare_stored(service.read_sessions, request=asked)
        except InvalidInput as error:
            found = tuple(FormProblem("", "", sentence_of(each)) for each in problems_of(error))
        except NotReady as error:
            found = (FormProblem("", "", str(error)),)
        else:
            report = comparison_report(base, standings, asked.to_budget())
            falls = tuple(waterfall(each.contender.plan.time, base.time, each.contender.name) for each in standings)
    status = 422 if found else 200
    return page(
        request,
        "compare_plans.html",
        status=status,
        plans=lines,
        runs=runs and runs.summary,
        found=found,
        report=report,
        falls=falls,
    )


@router.get("/plans/{plan_id}/compare")
def ask(request: Request, plan_id: str, launch: str = "") -> Response:
    """The form, empty or with a configuration named in the address."""
    return _page(request, plan_id, dict.fromkeys(_FIELDS, "") | {"launch": launch[:1000]}, (), None)


@router.post("/plans/{plan_id}/compare")
def answer(request: Request, plan_id: str, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """The own configuration beside the plan, or what is wrong with it."""
    values: Typed = {name: str(data.get(name, "")) for name in _FIELDS}
    report: ComparisonReport | None = None
    found: tuple[FormProblem, ...] = ()
    try:
        asked = read_document(ComparisonRequest, _request_data(plan_id, values), what="comparison")
        plan, others = compare_stored(service_of(request).read_sessions, request=asked)
        report = comparison_report(plan, others, asked.to_budget())
    except InvalidInput as error:
        found = tuple(_at_field(each.field, sentence_of(each)) for each in problems_of(error))
    except NotReady as error:
        found = (FormProblem("", "", str(error)),)
    return _page(request, plan_id, values, found, report)


def _request_data(plan_id: str, values: Typed) -> dict[str, Any]:
    """The request that the form spells; a box left empty is a field left out."""
    other = {name: values[name].strip() for name in ("name", "launch") if values[name].strip()}
    data: dict[str, Any] = {"plan": plan_id, "others": [other]}
    if not values["launch"].strip():
        raise InvalidInput("launch", "", "is missing", "paste launch arguments, or write degrees")
    if values["tokens"].strip():
        data["tokens"] = token_count(values["tokens"], field="tokens")
    for name in ("gpus", "usd_per_gpu_hour"):
        if values[name].strip():
            data[name] = number(values[name])
    return data


def _at_field(path: str, text: str) -> FormProblem:
    """A problem at the field it concerns; one with a launch argument names the flag."""
    inside = path.removeprefix("others[0].")
    top, _, flag = inside.partition(".")
    if top not in _FIELDS:
        return FormProblem("launch", _FIELDS["launch"], f"{inside}: {text}")
    return FormProblem(top, _FIELDS[top], f"{flag}: {text}" if flag else text)


def _page(
    request: Request,
    plan_id: str,
    values: Typed,
    found: tuple[FormProblem, ...],
    report: ComparisonReport | None,
) -> Response:
    with service_of(request).read_sessions() as session:
        record = plans.get_plan(session, plan_id=plan_id)
        running = _running(session, record)
    show = page if report is None else answer_page
    return show(
        request,
        "compare.html",
        status=422 if found else 200,
        plan=plan_line(record),
        running=running,
        values=values,
        found=found,
        report=report,
    )


def _running(session: Session, plan: PlanRecord) -> list[tuple[str, str]]:
    """Names of jobs of the plan's cluster that train its model by another plan, and the ids of what they run by."""
    try:
        jobs = running_jobs.list_jobs(session, reference=plan.cluster_name, limit=MAX_LIMIT).items
    except NotFound:
        return []
    return [
        (job.name, job.plan.id)
        for job in jobs
        if job.kind is PlanKind.TRAINING
        and job.plan is not None
        and job.plan.summary.model == plan.model_name
        and job.plan.plan_id != plan.id
    ]
