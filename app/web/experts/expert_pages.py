"""Pages of routing statistics, and of where experts should lie."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from app.db.engine import transaction
from app.documents.reading import NAME, problems_of, read_document
from app.documents.routing import check_set
from app.experts.request import BALANCE, BOTH, LOCALITY, PlacementRequest
from app.imports.sources import SentFile
from app.resources import Service, service_of
from app.routing.reading import RoutingRead, read_all
from app.services.errors import NameTaken, NotReady
from app.services.experts import expert_placements, routing
from app.services.experts.routing import RoutingRecord
from app.web.clusters.import_form import sent_files
from app.web.clusters.import_pages import sent_upload
from app.web.error_pages import PageRoute
from app.web.experts.expert_form import MEAN, WORST, at_fields, blank, request_data, typed
from app.web.experts.expert_links import link_choices, more_in_use
from app.web.experts.expert_placement import PlacementPage, placement_page
from app.web.experts.experts import notice_lines, routing_line, statistics_page
from app.web.experts.load_map import load_map
from app.web.experts.map_downloads import map_download
from app.web.forms import FormProblem, Typed
from app.web.kept_pages import answer_page
from app.web.origin import sent_form
from app.web.rendering import page
from cluster_models.errors import InvalidInput
from cluster_models.units import MIB
from readers.frame.findings import Finding

PAGE: Final = 50
REFUSE, ADD, REPLACE = "refuse", "add", "replace"
_EXISTING: Final = (
    (REFUSE, "change nothing"),
    (ADD, "add the workloads"),
    (REPLACE, "replace what is stored"),
)
_COUNTS: Final = ((WORST, "the worst of them"), (MEAN, "their weighted mean"))
_COPIES: Final = ((BOTH, "not known: guard both"), ("nearest", "the nearest"), ("any", "any, all alike"))
_OBJECTIVES: Final = ((BALANCE, "balance of ranks"), (LOCALITY, "locality between layers"))
_EFFORTS: Final = (("1", "usual"), ("2", "twice the work"), ("3", "three times the work"))
_BLANK: Final = {"name": "", "existing": REFUSE}
_LONGEST_NAME: Final = 200

router = APIRouter(route_class=PageRoute, include_in_schema=False)
_Upload = Annotated[FormData, Depends(sent_upload)]
_Form = Annotated[FormData, Depends(sent_form)]


@router.get("/experts")
def statistics_list(
    request: Request, cursor: str | None = None, name: str = "", existing: str = REFUSE
) -> Response:
    """All stored statistics, and the form that takes in files; ``name`` is what they are for."""
    return _list(request, {"name": name, "existing": existing}, (), cursor=cursor)


@router.post("/experts")
def take_in(request: Request, data: _Upload) -> Response:
    """Read what was sent and store it, or show what is wrong with it file by file."""
    values = {field: str(data.get(field) or default).strip() for field, default in _BLANK.items()}
    found: list[FormProblem] = []
    name = values["name"]
    if not re.fullmatch(NAME, name) or len(name) > _LONGEST_NAME:
        problem = "is not a name; begin with a letter or digit; then letters, digits, . _ -"
        found.append(
            FormProblem("name", "Name", problem if name else "is missing; name the model that was recorded")
        )
    read = None
    files = sent_files(data)
    if not files:
        found.append(FormProblem("files", "Files", "are missing; choose some"))
    else:
        try:
            read = _read(files)
        except InvalidInput as error:
            found += _refusals(files, error)
    if found or read is None:
        return _list(request, values, found)
    try:
        with transaction(service_of(request).sessions) as session:
            record = _store(session, name, values["existing"], read)
    except NameTaken:
        problem = "is taken; say below what to do then, or use another name"
        return _list(request, values, [FormProblem("name", "Name", problem)])
    except InvalidInput as error:
        if error.field == "name":
            return _list(request, values, [FormProblem("name", "Name", f"{error.problem}; {error.remedy}")])
        return _list(request, values, [FormProblem("files", "Files", _sentence(error))])
    if not read.notices:
        return RedirectResponse(f"/experts/{quote(record.name, safe='')}", 303)
    with service_of(request).read_sessions() as session:
        return _statistics(request, session, record, notices=read.notices)


@router.get("/experts/{name}")
def statistics(request: Request, name: str, workload: str = "") -> Response:
    """Page of stored statistics, with the form that places their experts; ``workload`` is the one drawn."""
    with service_of(request).read_sessions() as session:
        return _statistics(request, session, routing.find_routing(session, name=name), drawn=workload)


@router.post("/experts/{name}")
def place(request: Request, name: str, data: _Form) -> Response:
    """The placement that was asked for, or what is wrong with the request.  Takes seconds."""
    service = service_of(request)
    with service.read_sessions() as session:
        record = routing.find_routing(session, name=name)
        names = [each.name for each in record.statistics.workloads]
        values = typed(data, blank(names))
    found: tuple[FormProblem, ...] = ()
    answer = None
    try:
        answer = _place(service, name, values)
    except InvalidInput as error:
        found = at_fields(problems_of(error), names)
    except NotReady as error:
        found = (FormProblem("", "", str(error)),)
    with service.read_sessions() as session:
        return _statistics(request, session, record, values=values, found=found, answer=answer)


@router.post("/experts/{name}/map")
def map_file(request: Request, name: str, data: _Form) -> Response:
    """The map that the page carries, as the files of an engine."""
    with service_of(request).read_sessions() as session:
        routing.find_routing(session, name=name)
    return map_download(data)


@router.post("/experts/{name}/delete")
def forget(request: Request, name: str) -> Response:
    """Forget stored statistics."""
    with transaction(service_of(request).sessions) as session:
        routing.delete_routing(session, name=name)
    return RedirectResponse("/experts", 303)


def _read(files: Sequence[SentFile]) -> RoutingRead:
    found = read_all(files)
    if not found.workloads:
        problem = "says where experts lie, not how often they were selected"
        raise InvalidInput(found.maps[0].name, "a map", problem, "send the counts too")
    check_set(found.workloads)
    return found


def _refusals(files: Sequence[SentFile], error: InvalidInput) -> list[FormProblem]:
    """A line for each file that cannot be used; one for all where each of them could be used alone."""
    found = []
    for file in files if len(files) > 1 else ():
        try:
            _read([file])
        except InvalidInput as refused:
            found.append(FormProblem("files", "Files", _sentence(refused)))
    return found or [FormProblem("files", "Files", _sentence(error))]


def _sentence(error: InvalidInput) -> str:
    return f"{error.field}: " + "; ".join(filter(None, (error.problem, error.remedy)))


def _store(session: Session, name: str, existing: str, read: RoutingRead) -> RoutingRecord:
    try:
        return routing.create_routing(session, name=name, workloads=read.workloads)
    except NameTaken:
        if existing not in {ADD, REPLACE}:
            raise
        return routing.replace_routing(session, name=name, workloads=read.workloads, keep_others=existing == ADD)


def _place(service: Service, name: str, values: Typed) -> PlacementPage:
    document = read_document(PlacementRequest, request_data(values, name), what="form")
    with service.read_sessions() as session:
        asked = expert_placements.prepare(session, request=document)
        model = expert_placements.model_of(session, fields=document)
    answer = expert_placements.place(asked)
    return placement_page(answer, asked, model)


def _list(request: Request, values: Typed, found: Sequence[FormProblem], *, cursor: str | None = None) -> Response:
    service = service_of(request)
    with service.read_sessions() as session:
        stored = routing.list_routing(session, limit=PAGE, cursor=cursor)
    return page(
        request,
        "experts.html",
        status=422 if found else 200,
        values=values,
        found=tuple(found),
        existing=_EXISTING,
        statistics=[routing_line(record) for record in stored.items],
        next_page=stored.next_cursor and f"/experts?cursor={stored.next_cursor}",
        most=f"{service.settings.max_body_bytes // MIB} MiB",
    )


def _statistics(
    request: Request,
    session: Session,
    record: RoutingRecord,
    *,
    values: Typed | None = None,
    found: Sequence[FormProblem] = (),
    answer: PlacementPage | None = None,
    notices: Sequence[Finding] = (),
    drawn: str = "",
) -> Response:
    names = [each.name for each in record.statistics.workloads]
    values = blank(names) if values is None else values
    drawn = drawn if drawn in names else names[0]
    counted = {each.name: each for each in routing.get_routing(session, name=record.name).workloads}
    show = page if answer is None and not notices else answer_page
    return show(
        request,
        "expert_statistics.html",
        status=422 if found else 200,
        name=record.name,
        told=statistics_page(record),
        drawn=drawn,
        loads=load_map(counted[drawn]),
        workloads=names,
        notices=notice_lines(notices),
        values=values,
        found=tuple(found),
        answer=answer,
        counts=_COUNTS,
        efforts=_EFFORTS,
        copies=_COPIES,
        objectives=_OBJECTIVES if any(each.transition_layers for each in record.statistics.workloads) else (),
        links=link_choices(session, experts=record.statistics.experts),
        more_open=more_in_use(values, found),
    )
