"""Data of our pages' forms; requests of other sites never come so far (``app.trusted_requests``)."""

from __future__ import annotations

from fastapi import Request
from starlette.datastructures import FormData

from app.resources import service_of


async def sent_form(request: Request) -> FormData:
    """Data of a form of ours; boxes may be as large as the service's limit for bodies."""
    return await request.form(max_part_size=service_of(request).settings.max_body_bytes)
