"""Pages of clusters."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import FormData

from app.db.engine import transaction
from app.documents.reading import problems_of
from app.example_files import example_clusters
from app.presentation.figures import plural
from app.resources import service_of
from app.services.clusters import aliases, clusters
from app.services.errors import NameTaken
from app.web.clusters.cluster import cluster_page
from app.web.clusters.cluster_now import cluster_now
from app.web.clusters.stored_figures import figures_of
from app.web.error_pages import PageRoute
from app.web.forms import FormProblem, Typed
from app.web.listing import cluster_line
from app.web.origin import sent_form
from app.web.planning.form import at_fields, typed
from app.web.planning.plan_request import cluster_document
from app.web.rendering import page
from cluster_models.errors import InvalidInput

PAGE: int = 50
_BLANK = {"cluster_file": "", "cluster_text": ""}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/clusters")
def cluster_list(request: Request, cursor: str | None = None) -> Response:
    """All stored clusters."""
    with service_of(request).read_sessions() as session:
        found = clusters.list_clusters(session, limit=PAGE, cursor=cursor)
    return page(
        request,
        "clusters.html",
        clusters=[cluster_line(record) for record in found.items],
        next_page=found.next_cursor and f"/clusters?cursor={found.next_cursor}",
    )


@router.get("/clusters/new")
def new_cluster(request: Request, example: str = "") -> Response:
    """The empty form, or one filled with an example."""
    text = next((path.read_text("utf-8") for path in example_clusters() if path.stem == example), "")
    return _form(request, {**_BLANK, "cluster_text": text}, ())


@router.post("/clusters/new")
def import_cluster(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Store the cluster that was sent, or show what is wrong with it."""
    values, found = typed(data, dict(_BLANK))
    if not found:
        try:
            with transaction(service_of(request).sessions) as session:
                record = clusters.create_cluster(session, document=cluster_document(values["cluster_text"]))
        except InvalidInput as error:
            found = at_fields(problems_of(error))
        except NameTaken as error:
            found = (FormProblem("cluster_text", "Cluster", str(error)),)
        else:
            return RedirectResponse(f"/clusters/{quote(record.name, safe='')}", 303)
    return _form(request, values, found)


@router.get("/clusters/{name:path}")
def cluster(request: Request, name: str, added: int | None = None) -> Response:
    """One cluster as it is now; ``added`` is how many measurements an import has just stored."""
    with service_of(request).read_sessions() as session:
        record = clusters.get_cluster(session, reference=name)
        figures = figures_of(session, record)
        names = aliases.list_aliases(session, reference=record.id)
        now = cluster_now(session, record, datetime.now(UTC))
    document = f"/api/v1/clusters/{quote(record.name, safe='')}"
    shown = cluster_page(
        figures, version=record.version, aliases=names, now=now.cluster, query=dict(request.query_params)
    )
    note = "" if added is None else f"Stored: {plural(max(0, added), 'measurement')} added."
    return page(request, "cluster.html", cluster=shown, now=now, document=document, note=note)


def _form(request: Request, values: Typed, found: tuple[FormProblem, ...]) -> Response:
    return page(
        request,
        "new_cluster.html",
        status=422 if found else 200,
        values=values,
        found=found,
        examples=[path.stem for path in example_clusters()],
    )
