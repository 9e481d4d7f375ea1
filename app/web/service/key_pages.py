"""The page of keys: those of the tenant, with buttons to revoke them and a form to make one."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import FormData

from app.access import keys
from app.access.keys import NewApiKey
from app.access.principals import ROLES, scopes_of
from app.db.engine import transaction
from app.presentation.keys import KEY_COLUMNS, key_cells
from app.resources import service_of
from app.web.error_pages import PageRoute
from app.web.forms import FormProblem
from app.web.origin import sent_form
from app.web.rendering import page
from cluster_models.errors import InvalidInput

_KEYS: Final = 100
_LABELS: Final = {
    "name": "Name",
    "role": "Role",
    "days": "Days that it is valid",
    "requests_per_minute": "Requests a minute",
}
_LONGEST_DAYS: Final = 36_500.0

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/keys")
def key_list(request: Request, cursor: str | None = None) -> Response:
    """Every key, newest first, revoked ones among them."""
    return _page(request, dict.fromkeys(_LABELS, ""), (), None, cursor)


@router.post("/keys")
def make_key(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Make a key; its text is in this answer only."""
    values = {name: str(data.get(name) or "").strip() for name in _LABELS}
    made: NewApiKey | None = None
    found: tuple[FormProblem, ...] = ()
    try:
        with transaction(service_of(request).sessions) as session:
            made = keys.create_key(
                session,
                name=values["name"],
                scopes=scopes_of(values["role"], ()),
                expires_at=_end(values["days"]),
                requests_per_minute=_requests(values["requests_per_minute"]),
            )
    except InvalidInput as error:
        anchor = error.field if error.field in _LABELS else "days"
        told = "; ".join(filter(None, (error.problem, error.remedy)))
        found = (FormProblem(anchor, _LABELS[anchor], told),)
    return _page(request, values if found else dict.fromkeys(_LABELS, ""), found, made)


@router.post("/keys/{key_id}/revoke")
def end_key(request: Request, key_id: str) -> Response:
    """Revoke a key: it opens nothing from now on, and whoever is signed in by it is signed out."""
    with transaction(service_of(request).sessions) as session:
        keys.revoke_key(session, key_id=key_id)
    return RedirectResponse("/keys", 303)


def _end(days: str) -> datetime | None:
    """Moment when a key ends that is valid so long; ``None`` where nothing is typed."""
    if not days:
        return None
    try:
        value = float(days)
    except ValueError:
        value = math.nan
    if not 0 < value <= _LONGEST_DAYS:
        raise InvalidInput(
            "days", days, "is not a number of days to come", "leave it empty for a key without an end"
        )
    return datetime.now(UTC) + timedelta(days=value)


def _requests(text: str) -> int | None:
    """A limit of a key's own; ``None`` where nothing is typed."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 0 < int(text[:10]) < 2**31):
        raise InvalidInput(
            "requests_per_minute", text, "is not a whole number above 0", "leave it empty for the usual"
        )
    return int(text[:10])


def _page(
    request: Request,
    values: dict[str, str],
    found: tuple[FormProblem, ...],
    made: NewApiKey | None,
    cursor: str | None = None,
) -> Response:
    now = datetime.now(UTC)
    with service_of(request).read_sessions() as session:
        listed = keys.list_keys(session, limit=_KEYS, cursor=cursor)
    further = listed.next_cursor and request.url.include_query_params(cursor=listed.next_cursor)
    return page(
        request,
        "keys.html",
        status=422 if found else 201 if made else 200,
        values={**values, "role": values["role"] or "planner"},
        found=found,
        made=made,
        roles=[(role, f"{role}: {', '.join(sorted(scopes))}") for role, scopes in ROLES.items()],
        columns=KEY_COLUMNS,
        keys=[(key_cells(key, now), key.is_valid(now)) for key in listed.items],
        next_page=further and f"/keys?{further.query}",
    )
