"""The page of a cluster's failures: what is not well, reports, spares, settings, and decisions made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import FormData

from app.db.engine import transaction
from app.documents.reading import problems_of
from app.presentation.reliability import reliability_figures
from app.resources import Service, service_of
from app.services.clusters import aliases, clusters
from app.services.clusters.aliases import StoredAlias
from app.services.decisions import replan_settings, replans, reports
from app.services.decisions.reports import ReportAnswer
from app.services.errors import Conflict
from app.services.health import health_events, incoming_reports
from app.services.health.reliability import measure_reliability
from app.services.running import occupancy
from app.web.clusters.cluster_now import cluster_now
from app.web.error_pages import PageRoute
from app.web.failures import failure_forms as forms
from app.web.failures.health import event_rows
from app.web.failures.replan import replan_line
from app.web.forms import FormProblem, Typed, sent_words
from app.web.rendering import page
from cluster_models.cluster.topology import MOST_NODES
from cluster_models.errors import InvalidInput
from cluster_models.health.conditions import OPERATOR
from readers.frame.facts import NameKind

_EVENTS: Final = 40
_DECISIONS: Final = 10
MOST_BOXES: Final = 400
"""More nodes than this are named in a box instead of ticked."""

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(slots=True)
class _Shown:
    """Texts in the forms of the page, and problems with one of them."""

    report: Typed = field(default_factory=forms.blank_report)
    settings: Typed | None = None
    alias: Typed = field(default_factory=lambda: {"alias": "", "alias_node": ""})
    spares: tuple[str, ...] | None = None
    found: list[FormProblem] = field(default_factory=list)
    status: int = 422


async def sent_names(request: Request) -> FormData:
    """Data of a form of ours, with as many fields as a cluster has nodes."""
    most = service_of(request).settings.max_body_bytes
    return await request.form(max_fields=MOST_NODES + 100, max_part_size=most)


@router.get("/clusters/{name:path}/failures")
def failures_of(request: Request, name: str, cursor: str | None = None, told: str = "", node: str = "") -> Response:
    """The page; ``told`` says what has just been done, ``node`` is the one to report."""
    return _page(request, name, _Shown(report=forms.blank_report(node)), cursor=cursor, told=told)


@router.post("/clusters/{name:path}/failures")
def change_failures(request: Request, name: str, data: Annotated[FormData, Depends(sent_names)]) -> Response:
    """Do what one of the page's forms asks for; a refusal comes back with all that was typed."""
    shown = _Shown()
    act = _ACTS.get(str(data.get("do") or ""))
    if act is None:
        shown.found.append(FormProblem("", "", "The form does not say what is to be done; use one of its buttons."))
        return _page(request, name, shown)
    try:
        answer = act(service_of(request), name, data, shown)
    except Conflict as error:
        shown.found.append(FormProblem("", "", str(error)))
        shown.status, answer = 409, None
    return _page(request, name, shown) if answer is None else answer


def _report(service: Service, name: str, data: FormData, shown: _Shown) -> Response | None:
    shown.report = sent_words(data, shown.report)
    with transaction(service.sessions) as session:
        cluster = clusters.get_cluster(session, reference=name).cluster
        event = forms.reported(shown.report, cluster, shown.found)
        if event is None:
            return None
        answer = incoming_reports.receive(
            session, reference=name, reported=[(OPERATOR, event)], now=datetime.now(UTC)
        )
    _answer_safely(service, answer)
    if answer.replan_id is not None:
        return RedirectResponse(f"/replans/{answer.replan_id}", 303)
    return _done(name, "reported")


def _answer_safely(service: Service, answer: ReportAnswer) -> None:
    if answer.wants_safe_answer and answer.replan_id is not None:
        service.answer_failures(answer.replan_id)


def _decide(service: Service, name: str, _data: FormData, _shown: _Shown) -> Response | None:
    with transaction(service.sessions) as session:
        replan_id = reports.request_replan(session, reference=name, reason="It was asked for by hand.")
    service.answer_failures(replan_id)
    return RedirectResponse(f"/replans/{replan_id}", 303)


def _spares(service: Service, name: str, data: FormData, shown: _Shown) -> Response | None:
    wanted = forms.spares_of(data)
    try:
        with transaction(service.sessions) as session:
            occupancy.replace_spares(session, reference=name, nodes=wanted)
    except InvalidInput as error:
        shown.spares = tuple(wanted)
        for each in problems_of(error):
            told = "; ".join(filter(None, (f"{each.value} {each.problem}", each.remedy)))
            shown.found.append(FormProblem("spares_text", "Spares", told))
        return None
    return _done(name, "spares")


def _settings(service: Service, name: str, data: FormData, shown: _Shown) -> Response | None:
    with service.read_sessions() as session:
        before = replan_settings.get_settings(session, reference=name)
    shown.settings = sent_words(data, forms.filled_settings(before))
    settings = forms.settings_of(shown.settings, shown.found)
    if shown.found:
        return None
    with transaction(service.sessions) as session:
        replan_settings.replace_settings(session, reference=name, settings=settings)
    return _done(name, "settings")


def _alias(service: Service, name: str, data: FormData, shown: _Shown) -> Response | None:
    shown.alias = sent_words(data, shown.alias)
    alias, node = shown.alias["alias"], shown.alias["alias_node"]
    try:
        with transaction(service.sessions) as session:
            known = aliases.list_aliases(session, reference=name)
            added = StoredAlias(alias=alias, kind=NameKind.HOST, node=node)
            aliases.replace_aliases(session, reference=name, aliases=(*known, added))
    except InvalidInput as error:
        shown.found += [
            FormProblem("alias_node", f"Name {alias}", "; ".join(filter(None, (each.problem, each.remedy))))
            for each in problems_of(error)
        ]
        return None
    return _done(name, "alias")


def _done(name: str, told: str) -> Response:
    return RedirectResponse(f"/clusters/{quote(name, safe='')}/failures?told={told}", 303)


_Act = Callable[[Service, str, FormData, _Shown], Response | None]
_ACTS: Final[Mapping[str, _Act]] = {
    "report": _report,
    "decide": _decide,
    "spares": _spares,
    "settings": _settings,
    "alias": _alias,
}
_TOLD: Final = {
    "reported": "Stored. No job is touched by it, so nothing has to be decided.",
    "spares": "Stored: the spares are as ticked.",
    "settings": "Stored: the settings count from the next failure on.",
    "alias": "Stored: reports under that name count from now on. Those that came before stay as they are.",
}


def _page(request: Request, name: str, shown: _Shown, *, cursor: str | None = None, told: str = "") -> Response:
    now = datetime.now(UTC)
    with service_of(request).read_sessions() as session:
        stored = clusters.get_cluster(session, reference=name)
        events = health_events.list_events(session, reference=stored.id, limit=_EVENTS, cursor=cursor)
        decisions = replans.list_replans(session, reference=stored.id, limit=_DECISIONS)
        spares = occupancy.spare_names(session, cluster_id=stored.id)
        held = {node for node, _gpu in occupancy.held_gpus(session, cluster_id=stored.id)}
        settings = shown.settings or forms.filled_settings(
            replan_settings.get_settings(session, reference=stored.id)
        )
        view = cluster_now(session, stored, now)
        measured = reliability_figures(measure_reliability(session, reference=stored.id, now=now))
    kept = spares if shown.spares is None else shown.spares
    nodes = [node.name for node in stored.cluster.nodes]
    offered = [node for node in nodes if node not in held or node in kept]
    address = f"/clusters/{quote(stored.name, safe='')}"
    return page(
        request,
        "failures.html",
        status=shown.status if shown.found else 200,
        name=stored.name,
        address=address,
        now=view,
        note=_TOLD.get(told, ""),
        found=tuple(shown.found),
        report=shown.report,
        kinds=forms.KINDS,
        states=forms.STATE_CHOICES,
        nodes=nodes,
        switches=forms.switch_choices(stored.cluster),
        events=event_rows(events.items),
        more_events=events.next_cursor and f"{address}/failures?cursor={events.next_cursor}#reports",
        alias=shown.alias,
        spares=set(kept),
        offered=offered if len(offered) <= MOST_BOXES else (),
        spares_text="\n".join(kept),
        settings=settings,
        setting_fields=forms.SETTINGS,
        setting_boxes=forms.SWITCHES,
        auto_actions=forms.AUTO_ACTIONS,
        reliability=measured,
        decisions=[replan_line(each) for each in decisions.items],
    )
