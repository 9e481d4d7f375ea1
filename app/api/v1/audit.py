"""The audit log of the caller's tenant."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field

from app.access import audit
from app.access.audit import AuditEntry, AuditFilter
from app.api.v1.answers import Moment, PageAnswer, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import Cursor, Limit, ServiceDep
from app.documents.moments import Moment as GivenMoment

router = APIRouter(tags=["access"], route_class=BodyRoute)


class AuditAnswer(BaseModel):
    """A request that changed something, or that was refused to."""

    id: int = Field(description="Counts up.", examples=[42])
    occurred_at: Moment
    actor: str = Field(description="Name of the key, or who was signed in; empty: nobody known.", examples=["ci"])
    key_id: str | None = Field(description="Public part of the key.", examples=["3f0c9a1e5b7d2468"])
    action: str = Field(description="What was done.", examples=["replans.approve_replan"])
    subject: str = Field(description="To what: a path.", examples=["/api/v1/replans/0f4d2c8e6b7a4c55/approve"])
    status: int = Field(
        description="HTTP status of the answer: 403 was refused; 0 came from the command line.", examples=[200]
    )
    request_id: str = Field(description="Id of the request in the service's log.", examples=["3f0c..."])
    address: str = Field(description="Network address that it came from.", examples=["192.0.2.7"])

    @classmethod
    def from_entry(cls, entry: AuditEntry) -> AuditAnswer:
        """The answer for an entry."""
        return cls.model_validate(entry, from_attributes=True)


def _filter(
    *,
    actor: Annotated[str | None, Query(max_length=200, description="Only what this one did.")] = None,
    action: Annotated[str | None, Query(max_length=100, description="Only this.")] = None,
    subject: Annotated[str | None, Query(max_length=2000, description="Only paths that begin so.")] = None,
    since: Annotated[GivenMoment | None, Query(description="Only from this moment on.")] = None,
    until: Annotated[GivenMoment | None, Query(description="Only before this moment.")] = None,
) -> AuditFilter:
    return AuditFilter(actor=actor, action=action, subject=subject, since=since, until=until)


@router.get("/audit")
def list_audit(
    request: Request,
    service: ServiceDep,
    which: Annotated[AuditFilter, Depends(_filter)],
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[AuditAnswer]:
    """Who changed, approved or deleted what, newest first."""
    with service.read_sessions() as session:
        page = audit.list_entries(session, which=which, limit=limit, cursor=cursor)
    return page_answer(request, page, AuditAnswer.from_entry)
