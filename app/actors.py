"""Sender of a request: known by a key, named by a proxy that is trusted, or by the request itself."""

from __future__ import annotations

from fastapi import Request

from app.access.requests import known_actor
from app.resources import service_of
from app.services.decisions.replan_steps import Actor


def actor_of(request: Request, said: str = "") -> Actor:
    """Actor known by a key or signed in, else the one whom the trusted header names (``Settings.actor_header``).

    Else who the request says it is, not verified.

    Raises ``InvalidInput`` of a name that is too long.
    """
    if (known := known_actor(request)) is not None:
        return known
    header = service_of(request).settings.actor_header
    named = request.headers.get(header, "").strip() if header else ""
    return Actor(named, verified=True) if named else Actor(said.strip())
