"""The page that says which experts should move when counts have changed, and whether that pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.documents.reading import problems_of, read_document
from app.experts.rebalancing import RebalanceFields, Rebalancing
from app.resources import service_of
from app.services.errors import NotReady
from app.services.experts import expert_placements, routing
from app.services.pagination import MAX_LIMIT
from app.services.planning import plans
from app.web.clusters.import_pages import sent_upload
from app.web.error_pages import PageRoute
from app.web.experts.expert_links import link_choices, more_in_use
from app.web.experts.expert_moves import MovesPage, moves_page
from app.web.experts.expert_moves_form import (
    LABELS,
    Sent,
    at_fields,
    blank,
    costs_in_use,
    request_data,
    running_of,
    sent_form,
    typed,
    workloads_of,
)
from app.web.experts.map_downloads import map_download
from app.web.experts.workload_weights import weight_lines
from app.web.forms import FormProblem, sentence_of
from app.web.kept_pages import answer_page
from app.web.listing import plan_line
from app.web.origin import sent_form as sent_fields
from app.web.planning.choices import Options
from app.web.rendering import page
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.units import MIB

_ROOM: Final = 0.75
"""Share of a form that files of counts may take; the map and what else is typed come on top."""
_MOST_PLANS: Final = 50
_NO_PLAN: Final = ("", "from a file, or the box below")
_NO_STATISTICS: Final = ("", "from files, chosen below")
T = TypeVar("T")

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/experts/rebalance")
def empty(request: Request, statistics: str = "", plan: str = "") -> Response:
    """The empty form, or one for the map of a plan, or for stored statistics with all their workloads."""
    values = blank() | {"plan": plan}
    with service_of(request).read_sessions() as session:
        if statistics:
            told = routing.find_routing(session, name=statistics).statistics
            values |= {"routing": statistics, "workloads": weight_lines(each.name for each in told.workloads)}
        return _form(request, session, Sent(values), ())


@router.post("/experts/rebalance")
def rebalance(request: Request, data: Annotated[FormData, Depends(sent_upload)]) -> Response:
    """The moves that were asked for, or what is wrong with the request.  Takes seconds."""
    service = service_of(request)
    try:
        sent = sent_form(data, int(service.settings.max_body_bytes * _ROOM))
    except InvalidInput as error:
        with service.read_sessions() as session:
            return _form(request, session, Sent(typed(data)), [_problem("counts", error)])
    found: list[FormProblem] = []
    with service.read_sessions() as session:
        asked = _asked(session, sent, found)
    answer = None
    if asked is not None:
        rebalancing, model = asked
        try:
            answer = moves_page(expert_placements.find_moves(rebalancing), model)
        except NotReady as error:
            found.append(FormProblem("", "", str(error)))
    with service.read_sessions() as session:
        return _form(request, session, sent, found, answer)


@router.post("/experts/rebalance/map")
def map_file(data: Annotated[FormData, Depends(sent_fields)]) -> Response:
    """The new map that the page carries, as the files of an engine."""
    return map_download(data)


def _asked(
    session: Session, sent: Sent, found: list[FormProblem]
) -> tuple[Rebalancing, Architecture | None] | None:
    """The rebalancing, with the model where it is known; ``None`` where problems were added to ``found``.

    A map that was read takes the place of what stood in its box.
    """
    running = _tried(found, sent.map_anchor, lambda: running_of(session, sent))
    workloads = _tried(found, sent.counts_anchor, lambda: workloads_of(session, sent))
    if running is not None and running.text:
        sent.values["running_text"] = running.text
    try:
        document = read_document(RebalanceFields, request_data(sent.values, running), what="form")
        if running is None or workloads is None:
            return None
        model = expert_placements.model_of(session, fields=document) or running.model
        asked = expert_placements.rebalancing_of(session, fields=document, workloads=workloads, model=model)
    except InvalidInput as error:
        problems = problems_of(error)
        if running is None:  # it has a problem of its own, and may say the ranks
            unknown = {"physical_to_logical_map"} | (set() if sent.values["ranks"] else {"ranks"})
            problems = tuple(each for each in problems if each.field not in unknown)
        found += at_fields(problems, sent.map_anchor)
        return None
    return asked, model


def _tried(found: list[FormProblem], anchor: str, read: Callable[[], T]) -> T | None:
    """Result of ``read``; where it refuses, ``None`` and the problem at its field."""
    try:
        return read()
    except InvalidInput as error:
        found.append(_problem(anchor, error))
        return None


def _problem(anchor: str, error: InvalidInput) -> FormProblem:
    """A problem of a file names it, others have their field only."""
    first = problems_of(error)[0]
    place = "" if first.field in LABELS else f"{first.field}: "
    return FormProblem(anchor, LABELS[anchor], place + sentence_of(first))


def _form(
    request: Request,
    session: Session,
    sent: Sent,
    found: Sequence[FormProblem],
    answer: MovesPage | None = None,
) -> Response:
    values, show = sent.values, page if answer is None else answer_page
    stored = [each.name for each in routing.list_routing(session, limit=MAX_LIMIT).items]
    return show(
        request,
        "expert_moves.html",
        status=422 if found else 200,
        values=values,
        found=tuple(found),
        answer=answer,
        plans=(_NO_PLAN, *_plan_options(session, values["plan"])),
        stored=(_NO_STATISTICS, *((name, name) for name in stored)),
        kept=[file.name for file in sent.counts],
        carried=sent.carried,
        links=link_choices(session),
        more_open=more_in_use(values, found),
        costs_open=costs_in_use(values, found),
        most=f"{service_of(request).settings.max_body_bytes // MIB} MiB",
    )


def _plan_options(session: Session, chosen: str) -> Options:
    """Plans whose map may run, and one that was chosen in an address though many are newer."""
    lines = [plan_line(each) for each in plans.list_plans_with_experts(session, newest=_MOST_PLANS)]
    options = [(line.id, f"{line.model} on {line.cluster}, {line.asked}") for line in lines]
    if chosen and chosen not in {line.id for line in lines}:
        options.append((chosen, f"plan {chosen}"))
    return tuple(options)
