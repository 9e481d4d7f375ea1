"""Who sends a request: named by a proxy that is trusted, or by the request itself."""

from __future__ import annotations

from fastapi import Request

from app.resources import service_of
from app.services.replan_steps import Actor


def actor_of(request: Request, said: str = "") -> Actor:
    """Whom the trusted header names (``Settings.actor_header``), else who the request says it is, not verified.

    Raises ``InvalidInput`` of a name that is too long.
    """
    header = service_of(request).settings.actor_header
    named = request.headers.get(header, "").strip() if header else ""
    return Actor(named, verified=True) if named else Actor(said.strip())
