"""The page that says what would be done if parts of a cluster failed; nothing is changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from starlette.datastructures import FormData

from app.documents.reading import problems_of
from app.events.reading import ReportedEvent
from app.presentation.recovery import moment
from app.presentation.replans import unprepared_words
from app.presentation.sweeps import sweep_words
from app.resources import service_of
from app.services.clusters import clusters
from app.services.decisions import sweeps, what_if
from app.services.decisions.replan_views import AnswerView
from app.services.errors import Conflict
from app.web.clusters.gpu_grid import place_words
from app.web.error_pages import PageRoute
from app.web.failures.decision import decision_view
from app.web.failures.failure_forms import switch_choices
from app.web.failures.failure_pages import MOST_BOXES, sent_names
from app.web.forms import FormProblem
from app.web.kept_pages import answer_page
from app.web.rendering import page
from cluster_models.errors import InvalidInput
from cluster_models.health.events import EntityKind, HealthState

_SEPARATORS: Final = re.compile(r"[\s,]+")
_SWEEPS_SHOWN: Final = 5

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/clusters/{name:path}/what-if")
def ask(request: Request, name: str) -> Response:
    """The empty form, or the answer to what the address asks: it can be sent to others and asked again."""
    asked = request.query_params
    if not any(each in asked for each in ("node", "nodes_text", "switch")):
        return _page(request, name, (), (), (), None)
    return _answer(request, name, (*asked.getlist("node"), asked.get("nodes_text", "")), asked.getlist("switch"))


@router.post("/clusters/{name:path}/what-if")
def answer(request: Request, name: str, data: Annotated[FormData, Depends(sent_names)]) -> Response:
    """The same for more nodes than an address holds."""
    names = (str(each) for each in (*data.getlist("node"), data.get("nodes_text", "")))
    return _answer(request, name, tuple(names), tuple(map(str, data.getlist("switch"))))


def _answer(request: Request, name: str, named: Sequence[str], switched: Sequence[str]) -> Response:
    """Decision that would be made at once, or the problems with the question."""
    nodes = tuple(dict.fromkeys(each for text in named for each in _SEPARATORS.split(text) if each))
    switches = tuple(dict.fromkeys(switched))
    found: list[FormProblem] = []
    if not nodes and not switches:
        found.append(FormProblem("nodes", "Nodes", "are missing; choose what fails"))
        return _page(request, name, nodes, switches, found, None)
    now = datetime.now(UTC)
    losses = [_loss(EntityKind.NODE, node, "", now) for node in nodes]
    losses += [_loss(EntityKind.SWITCH, "", switch, now) for switch in switches]
    try:
        made = what_if.answer_losses(service_of(request).sessions, reference=name, losses=losses, now=now)
    except InvalidInput as error:
        for each in problems_of(error):
            told = "; ".join(filter(None, (f"{each.value} {each.problem}", each.remedy)))
            found.append(FormProblem("nodes", "Nodes", told))
    except Conflict as error:
        found.append(FormProblem("", "", str(error)))
    return _page(request, name, nodes, switches, found, None if found else made)


def _loss(kind: EntityKind, told: str, part: str, now: datetime) -> ReportedEvent:
    return ReportedEvent(
        kind=kind,
        told=told,
        part=part,
        state=HealthState.FAILED,
        occurred_at=now,
        source_id=f"{told}{part}",
    )


def _page(
    request: Request,
    name: str,
    nodes: Sequence[str],
    switches: Sequence[str],
    found: Sequence[FormProblem],
    made: AnswerView | None,
) -> Response:
    with service_of(request).read_sessions() as session:
        stored = clusters.get_cluster(session, reference=name)
        asked_before = sweeps.list_sweeps(session, limit=_SWEEPS_SHOWN, reference=stored.id).items
    groups: dict[str, list[str]] = {}
    for node in stored.cluster.nodes:
        groups.setdefault(place_words(node), []).append(node.name)
    show = answer_page if made is not None and request.method == "POST" else page
    return show(
        request,
        "what_if.html",
        status=422 if found else 200,
        name=stored.name,
        address=f"/clusters/{quote(stored.name, safe='')}",
        groups=groups if len(stored.cluster.nodes) <= MOST_BOXES else {},
        values={"nodes": "\n".join(nodes)},
        nodes=set(nodes),
        switches=set(switches),
        switch_choices=switch_choices(stored.cluster),
        labels=sweeps.labels_of(stored.cluster),
        sweeps=[(each, moment(each.created_at), sweep_words(each)) for each in asked_before],
        found=tuple(found),
        view=None if made is None else decision_view(made),
        unprepared=unprepared_words(made.unprepared if made else ()),
        asked=[*nodes, *(switch.replace(":", " ", 1) for switch in switches)],
    )
