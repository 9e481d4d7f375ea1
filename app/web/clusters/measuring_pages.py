"""The page of a cluster that says what to measure next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.db.status import PlanKind, PlanStatus
from app.exports.contract import SHELL, ZIP
from app.exports.measuring import Launcher, scripts
from app.exports.options import Options, options_of
from app.exports.packing import archive
from app.resources import service_of
from app.services.clusters import clusters, measuring
from app.services.errors import NotFound
from app.services.pagination import MAX_LIMIT
from app.services.planning import plans
from app.services.planning.plans import PlanRecord
from app.web.clusters.measuring import file_name, measuring_page
from app.web.error_pages import PageRoute
from app.web.forms import FormProblem
from app.web.listing import plan_line
from app.web.rendering import page
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from solver.measuring.choose import MeasuringPlan

_DEFAULTS: Final = {"plan": "", "pairs": "50", "minutes": "60", "image": "", "namespace": ""}
_OPTIONS: Final = ("image", "namespace")
_LABELS: Final = {
    "pairs": "Pairs at most",
    "minutes": "Minutes at most",
    "image": "Image",
    "namespace": "Namespace",
}
_MOST: Final = {"pairs": 10_000, "minutes": 43_200}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True, slots=True)
class _Asked:
    """How much may be measured, for which plan, and what manifests need."""

    plan_id: str | None
    pairs: int
    minutes: int
    options: Options


@router.get("/clusters/{name:path}/measure")
def what_next(request: Request, name: str) -> Response:
    """The pairs to measure next, with scripts."""
    values = _values(request.query_params)
    with service_of(request).read_sessions() as session:
        record = clusters.find_cluster(session, reference=name)
        made = plans.list_plans(session, limit=MAX_LIMIT, status=PlanStatus.SUCCEEDED, cluster_name=record.name)
    choices = [
        ("", "any plan"),
        *((one.id, f"{(line := plan_line(one)).model}, {line.asked}") for one in made.items if _is_training(one)),
    ]
    asked, found = _asked(values)
    shown = None
    if asked is not None:
        snapshot, plan = _plan(request, name, asked)
        query = {key: text for key, text in values.items() if text and text != _DEFAULTS[key]}
        shown = measuring_page(
            plan, snapshot.cluster.nodes, cluster=record.name, query=query, options=asked.options
        )
    return page(
        request,
        "measure.html",
        status=422 if found else 200,
        cluster=record.name,
        values=values,
        plans=choices,
        found=found,
        shown=shown,
    )


@router.get("/clusters/{name:path}/measure/{launcher}")
def script(request: Request, name: str, launcher: Launcher) -> Response:
    """The scripts of one launcher."""
    asked, found = _asked(_values(request.query_params))
    if asked is None:
        raise InvalidInput(found[0].anchor, "", found[0].text)
    _, plan = _plan(request, name, asked)
    files = scripts(plan, launcher, asked.options)
    if not files:
        raise NotFound("script", launcher.value)
    content, kind = (archive(files), ZIP) if launcher is Launcher.KUBERNETES else (files[0].text.encode(), SHELL)
    headers = {"Content-Disposition": f'attachment; filename="{file_name(launcher)}"'}
    return Response(content, media_type=kind, headers=headers)


def _values(query: Mapping[str, str]) -> dict[str, str]:
    return {name: query.get(name, "").strip() or default for name, default in _DEFAULTS.items()}


def _asked(values: Mapping[str, str]) -> tuple[_Asked | None, tuple[FormProblem, ...]]:
    """Request in the address, or the problems with it."""
    found: list[FormProblem] = []
    numbers = {}
    for name, most in _MOST.items():
        text = values[name]
        if text.isascii() and text.isdigit() and len(text) < 8 and 1 <= int(text) <= most:
            numbers[name] = int(text)
        else:
            found.append(FormProblem(name, _LABELS[name], f"must be a whole number from 1 to {most:,}"))
    try:
        options = options_of({name: values[name] for name in _OPTIONS if values[name]})
    except InvalidInput as error:
        name = error.field.removeprefix("options.")
        found.append(FormProblem(name, _LABELS.get(name, name), f"{error.problem}; {error.remedy}"))
    if found:
        return None, tuple(found)
    return _Asked(values["plan"] or None, numbers["pairs"], numbers["minutes"], options), ()


def _is_training(plan: PlanRecord) -> bool:
    """Whether it is of training: which links a serving plan rests on is not worked out."""
    return plan.kind is PlanKind.TRAINING


def _plan(request: Request, name: str, asked: _Asked) -> tuple[ClusterSnapshot, MeasuringPlan]:
    with service_of(request).read_sessions() as session:
        snapshot, plan = measuring.subject(session, reference=name, plan_id=asked.plan_id)
    most_seconds = 60.0 * asked.minutes
    return snapshot, measuring.measuring_plan(snapshot, plan, most_pairs=asked.pairs, most_seconds=most_seconds)
