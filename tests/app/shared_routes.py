"""Routes of all applications of a test run: what their handlers take of a request is worked out once."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI

_KNOWN: Final[dict[tuple[Any, ...], Any]] = {}


def with_shared_routes(app: FastAPI) -> FastAPI:
    """The application with the routers of the first one that included them alike.

    FastAPI works a router's routes out at the first request that passes it, which took most of the time of a test.
    Nobody may override dependencies of such an application: those of the first one would be asked for.
    """
    for index, route in enumerate(app.router.routes):
        if (router := getattr(route, "original_router", None)) is not None:
            context: Any = getattr(route, "include_context")  # noqa: B009 - FastAPI exports no type of it
            key = id(router), context.prefix, tuple(each.dependency for each in context.dependencies)
            app.router.routes[index] = _KNOWN.setdefault(key, route)
    return app
