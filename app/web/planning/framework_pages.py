"""Files to start the description of a framework from."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import Response

from app.documents.framework import starting_text
from app.services.errors import NotFound
from app.web.error_pages import PageRoute
from app.web.rendering import SECURITY_HEADERS
from cluster_models.training.frameworks import frameworks

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/frameworks/{name}/file")
def framework_file(name: str) -> Response:
    """A shipped generation as a description, to be changed."""
    known = frameworks().get(name)
    if known is None:
        raise NotFound("framework", name)
    headers = {**SECURITY_HEADERS, "Content-Disposition": f'attachment; filename="{name}.yaml"'}
    return Response(starting_text(known), media_type="application/yaml", headers=headers)
