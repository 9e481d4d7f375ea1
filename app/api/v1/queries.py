"""Query parameters that an address does not know: a filter that is misspelt would answer with everything."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.documents.reading import FieldProblem, InvalidDocument, close_name


async def refuse_unknown_query(request: Request) -> None:
    """Raise ``InvalidDocument`` that names every parameter which the route does not take."""
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute):
        return
    known = _parameters(route)
    problems = [
        FieldProblem(f"query.{name}", value, "is not a parameter of this address", close_name(name, known))
        for name, value in request.query_params.multi_items()
        if name not in known
    ]
    if problems:
        raise InvalidDocument(problems)


def _parameters(route: APIRoute) -> tuple[str, ...]:
    """The names of the query parameters of a route and of all that it depends on."""
    return tuple(_names(route.dependant))


def _names(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for inner in dependant.dependencies:
        yield from _names(inner)
