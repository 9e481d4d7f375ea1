"""Scopes and tenant of the caller."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from app.access.principals import Scope
from app.access.requests import principal_of
from app.api.v1.bodies import BodyRoute

router = APIRouter(tags=["access"], route_class=BodyRoute)


class CallerAnswer(BaseModel):
    """Sender of a request, as far as it proves that."""

    tenant: str = Field(description="Whose things it sees and changes.", examples=["default"])
    name: str = Field(description="Name of the key; empty where none is needed.", examples=["nightly plans"])
    scopes: list[Scope] = Field(description="Rights that it has.", examples=[["plan", "read"]])


@router.get("/access")
def get_caller(request: Request) -> CallerAnswer:
    """The caller's tenant, name and scopes."""
    principal = principal_of(request)
    return CallerAnswer(tenant=principal.tenant_id, name=principal.name, scopes=sorted(principal.scopes))
