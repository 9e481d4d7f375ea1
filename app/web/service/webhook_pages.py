"""The page of connections: monitoring systems that report to us, and addresses that we tell."""

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
from app.events.registry import ADAPTERS, adapter_named
from app.resources import Service, service_of
from app.services.clusters import clusters
from app.services.errors import Conflict
from app.services.health import event_sources
from app.services.pagination import MAX_LIMIT
from app.services.webhooks import webhook_deliveries, webhooks
from app.services.webhooks.webhooks import EventType
from app.web.error_pages import PageRoute
from app.web.forms import FormProblem, Typed
from app.web.origin import sent_form
from app.web.rendering import page
from app.web.service.webhooks import Secret, delivery_rows, endpoint_row, event_types, source_row
from cluster_models.errors import InvalidInput

_ENDPOINTS: Final = 50
_DELIVERIES: Final = 50
_PER_ENDPOINT: Final = 5
_LABELS: Final = {
    "url": "Address",
    "source_name": "Name",
    "source_cluster": "Cluster",
    "adapter": "Format of its reports",
}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(slots=True)
class _Shown:
    """Texts in the forms, problems with one of them, and a secret that is shown this once."""

    values: Typed = field(
        default_factory=lambda: {"url": "", "types": (), "source_name": "", "source_cluster": "", "adapter": ""}
    )
    found: list[FormProblem] = field(default_factory=list)
    secret: Secret | None = None
    status: int = 422


@router.get("/webhooks")
def connections(request: Request, cluster: str = "") -> Response:
    """Sources of reports, and receivers of messages."""
    shown = _Shown()
    shown.values["source_cluster"] = cluster
    return _page(request, shown)


@router.post("/webhooks")
def change_connections(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Add, change or remove a connection; a new secret is in this answer only."""
    shown = _Shown()
    for name, kept in shown.values.items():
        text = data.get(name)
        shown.values[name] = (
            tuple(map(str, data.getlist(name))) if isinstance(kept, tuple) else str(text or "").strip()
        )
    act = _ACTS.get(str(data.get("do") or ""))
    if act is None:
        shown.found.append(FormProblem("", "", "The form does not say what is to be done; use one of its buttons."))
        return _page(request, shown)
    try:
        act(service_of(request), str(data.get("id") or ""), shown)
    except InvalidInput as error:
        for each in problems_of(error):
            anchor = {"name": "source_name", "cluster": "source_cluster"}.get(each.field, each.field)
            told = "; ".join(filter(None, (each.problem, each.remedy)))
            shown.found.append(FormProblem(anchor if anchor in _LABELS else "", _LABELS.get(anchor, ""), told))
    except Conflict as error:
        shown.found.append(FormProblem("source_name", "Name", str(error)))
        shown.status = 409
    if shown.found or shown.secret:
        return _page(request, shown)
    return RedirectResponse("/webhooks", 303)


@router.get("/webhooks/{endpoint_id}")
def deliveries(request: Request, endpoint_id: str, cursor: str | None = None) -> Response:
    """The messages to one address."""
    with service_of(request).read_sessions() as session:
        endpoint = webhooks.get_endpoint(session, endpoint_id=endpoint_id)
        found = webhooks.list_deliveries(session, endpoint_id=endpoint_id, limit=_DELIVERIES, cursor=cursor)
    return page(
        request,
        "webhook.html",
        endpoint=endpoint_row(endpoint, (), datetime.now(UTC)),
        deliveries=delivery_rows(found.items, datetime.now(UTC)),
        next_page=found.next_cursor and f"/webhooks/{endpoint_id}?cursor={found.next_cursor}",
    )


@router.post("/webhooks/{endpoint_id}")
def send_again(request: Request, endpoint_id: str, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Send a message once more that was given up."""
    now = datetime.now(UTC)
    with transaction(service_of(request).sessions) as session:
        webhooks.get_endpoint(session, endpoint_id=endpoint_id)
        webhook_deliveries.retry(session, delivery_id=str(data.get("delivery") or ""), now=now)
    return RedirectResponse(f"/webhooks/{quote(endpoint_id, safe='')}", 303)


def _add_endpoint(service: Service, _id: str, shown: _Shown) -> None:
    known = set(EventType)
    types = [EventType(each) for each in shown.values["types"] if each in known]
    with transaction(service.sessions) as session:
        made = webhooks.create_endpoint(session, url=shown.values["url"], event_types=types)
    shown.secret = Secret(made.endpoint.url, made.secret, "Messages are signed with it, as Standard Webhooks say.")
    shown.values |= {"url": "", "types": ()}


def _renew(service: Service, endpoint_id: str, shown: _Shown) -> None:
    with transaction(service.sessions) as session:
        made = webhooks.renew_secret(session, endpoint_id=endpoint_id)
    shown.secret = Secret(made.endpoint.url, made.secret, "Messages are signed with it from now on.")


def _enable(service: Service, endpoint_id: str, _shown: _Shown) -> None:
    with transaction(service.sessions) as session:
        webhooks.change_endpoint(session, endpoint_id=endpoint_id, enabled=True)


def _disable(service: Service, endpoint_id: str, _shown: _Shown) -> None:
    with transaction(service.sessions) as session:
        webhooks.change_endpoint(session, endpoint_id=endpoint_id, enabled=False)


def _delete(service: Service, endpoint_id: str, _shown: _Shown) -> None:
    with transaction(service.sessions) as session:
        webhooks.delete_endpoint(session, endpoint_id=endpoint_id)


def _add_source(service: Service, _id: str, shown: _Shown) -> None:
    values = shown.values
    adapter = adapter_named(values["adapter"]).name
    if not values["source_cluster"]:
        raise InvalidInput("cluster", "", "is missing", "choose the cluster that it watches")
    with transaction(service.sessions) as session:
        made = event_sources.create_source(
            session, reference=values["source_cluster"], name=values["source_name"], adapter=adapter
        )
    means = "Reports must be signed with it (Standard Webhooks), or carry it as Authorization: Bearer."
    shown.secret = Secret(made.source.name, made.secret, means)
    shown.values |= {"source_name": "", "source_cluster": ""}


def _delete_source(service: Service, source_id: str, _shown: _Shown) -> None:
    with transaction(service.sessions) as session:
        event_sources.delete_source(session, source_id=source_id)


_ACTS: Final[Mapping[str, Callable[[Service, str, _Shown], None]]] = {
    "add": _add_endpoint,
    "renew": _renew,
    "enable": _enable,
    "disable": _disable,
    "delete": _delete,
    "add_source": _add_source,
    "delete_source": _delete_source,
}


def _page(request: Request, shown: _Shown) -> Response:
    now = datetime.now(UTC)
    base = str(request.base_url).rstrip("/")
    with service_of(request).read_sessions() as session:
        stored = clusters.list_clusters(session, limit=MAX_LIMIT).items
        sources = [
            source_row(each, cluster.name, base)
            for cluster in stored
            for each in event_sources.list_sources(session, reference=cluster.id)
        ]
        endpoints = [
            endpoint_row(
                each,
                webhooks.list_deliveries(session, endpoint_id=each.id, limit=_PER_ENDPOINT).items,
                now,
            )
            for each in webhooks.list_endpoints(session, limit=_ENDPOINTS).items
        ]
    return page(
        request,
        "webhooks.html",
        status=shown.status if shown.found else 200,
        values=shown.values,
        found=tuple(shown.found),
        secret=shown.secret,
        sources=sources,
        endpoints=endpoints,
        types=event_types(),
        adapters=[(each.name, each.known_as) for each in ADAPTERS.values()],
        clusters=[("", "choose one"), *((each.name, each.name) for each in stored)],
    )
