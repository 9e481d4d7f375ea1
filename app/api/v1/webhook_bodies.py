"""Addresses that get events, and sources of reports, as operators write them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.documents.reading import Document, Flag, Line, Text
from app.services.webhooks.webhooks import EventType

Url = Annotated[Line, Field(min_length=1)]
Secret = Annotated[Text, Field(max_length=200)]
EventTypes = Annotated[list[EventType], Field(max_length=len(EventType))]


class WebhookDocument(Document):
    """An address that gets events."""

    url: Url = Field(description="An http or https address.", examples=["https://hooks.example/meshwright"])
    event_types: EventTypes = Field([], description="Events to send; empty = all.", examples=[["replan.proposed"]])
    secret: Secret | None = Field(
        None,
        description="whsec_ and 24 to 64 bytes in base64 that messages are signed with; absent = one is made.",
        examples=[None],
    )


class WebhookPatch(Document):
    """Changes to an address; a field left out stays."""

    url: Url | None = Field(None, description="An http or https address.", examples=["https://hooks.example/b"])
    event_types: EventTypes | None = Field(
        None, description="Events to send from now on; empty = all.", examples=[["replan.applied"]]
    )
    enabled: Flag | None = Field(None, description="Whether messages are sent.", examples=[True])


class EventSourceDocument(Document):
    """A monitoring system that reports to a cluster."""

    name: Annotated[Text, Field(max_length=100)] = Field(
        description="Unique on its cluster; reports carry it as their source.", examples=["alertmanager-a"]
    )
    adapter: Text = Field(
        description="Format that it speaks; GET /api/v1/event-adapters lists them.", examples=["alertmanager"]
    )
    secret: Secret | None = Field(
        None,
        description="whsec_ and 24 to 64 bytes in base64 that reports are signed with or carry as a bearer token; "
        "absent = one is made.",
        examples=[None],
    )
