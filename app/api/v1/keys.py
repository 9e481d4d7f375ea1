"""Keys of the caller's tenant."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from app.access import keys
from app.access.keys import ApiKey, NewApiKey
from app.access.principals import Scope, scopes_of
from app.api.v1.answers import Moment, PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import Cursor, ExpectedTag, Limit, ServiceDep, content_tag, tagged
from app.db.access_tables import LONGEST_NAME
from app.db.engine import transaction
from app.documents.moments import Moment as GivenMoment
from app.documents.reading import Document
from app.services.preconditions import check_tag

router = APIRouter(tags=["access"], route_class=BodyRoute)

KeyPath = Annotated[
    str, Path(alias="key", description="Public part of the key.", examples=["3f0c9a1e5b7d2468"], max_length=200)
]
_Limit = Annotated[
    int | None, Field(description="Requests a minute; null: as the service has it.", examples=[600], ge=1)
]


class NewKeyDocument(Document):
    """A key to be made, with a role, scopes or both."""

    name: str = Field(
        min_length=1, max_length=LONGEST_NAME, description="Who or what uses it.", examples=["nightly plans"]
    )
    role: str | None = Field(
        None, description="Scopes by role: viewer, planner, operator or admin.", examples=["planner"]
    )
    scopes: list[str] = Field(
        default_factory=list, max_length=10, description="Scopes besides.", examples=[["read", "plan"]]
    )
    expires_at: GivenMoment | None = Field(
        None, description="When it ends; null: never.", examples=["2099-01-01T00:00:00Z"]
    )
    requests_per_minute: _Limit = None


class KeyAnswer(BaseModel):
    """A key without its secret."""

    id: str = Field(description="Its public part.", examples=["3f0c9a1e5b7d2468"])
    name: str = Field(description="Who or what uses it.", examples=["nightly plans"])
    scopes: list[Scope] = Field(description="Rights that it gives.", examples=[["plan", "read"]])
    requests_per_minute: _Limit
    created_at: Moment
    expires_at: datetime | None = Field(description="When it ends, in UTC; null: never.", examples=[None])
    revoked_at: datetime | None = Field(
        description="When it was revoked, in UTC; null: it was not.", examples=[None]
    )
    last_used_at: datetime | None = Field(
        description="When it was used last, to the minute, in UTC; null: never.", examples=["2026-11-21T09:00:00Z"]
    )

    @classmethod
    def from_key(cls, key: ApiKey) -> KeyAnswer:
        """The answer for a stored key."""
        return cls.model_validate(key, from_attributes=True)


class NewKeyAnswer(KeyAnswer):
    """A key with its text, which is shown this once."""

    key: str = Field(
        description="Send it as Authorization: Bearer.",
        examples=["mw_3f0c9a1e5b7d2468_MfKQ9r8GKYqrTwjUPD8ILPZIo2La"],
    )

    @classmethod
    def make(cls, made: NewApiKey) -> NewKeyAnswer:
        """The answer for a new key."""
        return cls(**dict(KeyAnswer.from_key(made.key)), key=made.text)


@router.post("/keys", status_code=201)
def create_key(document: NewKeyDocument, service: ServiceDep, response: Response) -> NewKeyAnswer:
    """Make a key.  Its text is in this answer only: revoke it and make another where that was lost."""
    with transaction(service.sessions) as session:
        made = keys.create_key(
            session,
            name=document.name,
            scopes=scopes_of(document.role, document.scopes),
            expires_at=document.expires_at,
            requests_per_minute=document.requests_per_minute,
        )
    response.headers["Location"] = address("keys", made.key.id)
    return NewKeyAnswer.make(made)


@router.get("/keys")
def list_keys(
    request: Request, service: ServiceDep, limit: Limit = 50, cursor: Cursor = None
) -> PageAnswer[KeyAnswer]:
    """Every key, newest first, revoked ones among them."""
    with service.read_sessions() as session:
        page = keys.list_keys(session, limit=limit, cursor=cursor)
    return page_answer(request, page, KeyAnswer.from_key)


@router.get("/keys/{key}")
def get_key(key: KeyPath, service: ServiceDep, response: Response) -> KeyAnswer:
    """One key, without its secret; the ETag changes when the key is used, too."""
    with service.read_sessions() as session:
        return tagged(response, KeyAnswer.from_key(keys.get_key(session, key_id=key)))


@router.delete("/keys/{key}", status_code=204)
def revoke_key(key: KeyPath, service: ServiceDep, expected: ExpectedTag) -> None:
    """Revoke a key: it opens nothing from now on, and who is signed in by it is signed out."""
    with transaction(service.sessions) as session:
        before = KeyAnswer.from_key(keys.get_key(session, key_id=key))
        check_tag("key", key, expected=expected, current=content_tag(before))
        keys.revoke_key(session, key_id=key)
