"""Messages to webhooks, described beside the routes: OpenAPI lists them under ``webhooks``."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header
from pydantic import BaseModel, ConfigDict, Field

from app.answers.addresses import Moment
from app.answers.replans import JobSummaryAnswer, ServingSummaryAnswer
from app.db.status import ReplanStatus
from app.services.webhooks.webhooks import PING, EventType

ReplanEvent = Literal[
    EventType.SAFE_ANSWER,
    EventType.PROPOSED,
    EventType.APPROVED,
    EventType.STARTED,
    EventType.JOB_COMPLETED,
    EventType.APPLIED,
    EventType.FAILED,
    EventType.CANCELLED,
    EventType.SUPERSEDED,
]
Cluster = Annotated[str, Field(description="Name of the cluster.", examples=["demo"])]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class _Message(_Part):
    timestamp: Moment


class ReplanNews(_Part):
    """A decision as it stands after a step: its address, and the summary of its answer."""

    replan_id: str = Field(description="Its id.", examples=["1b9d6bcdbbfd4b2d9b5dab8dfbbd4bed"])
    cluster: Cluster
    status: ReplanStatus = Field(description="Where it stands.", examples=["proposed"])
    reason: str = Field(description="Why it was opened.", examples=["node n017 failed: touches pretrain-a."])
    address: str = Field(description="Path under which it is read.", examples=["/api/v1/replans/1b9d6bcd"])
    problem: str | None = Field(description="Why it failed or was called off; null otherwise.", examples=[None])
    superseded_by: str | None = Field(description="Id of the decision that took over.", examples=[None])
    objections: list[str] = Field(description="Reasons against approving it unseen.", examples=[[]])
    fallback: bool | None = Field(description="Whether it is the safe answer.", examples=[False])
    gap: float | None = Field(description="(bound - objective) / bound.", examples=[0.004])
    spares_used: list[str] = Field(description="Spare nodes that it takes.", examples=[["s003"]])
    spares_left: list[str] = Field(description="Spare nodes that stay free.", examples=[["s004"]])
    quarantine: list[str] = Field(description="Nodes that should stay out.", examples=[[]])
    jobs: list[JobSummaryAnswer] = Field(description="Training jobs that it is about.")
    serving: list[ServingSummaryAnswer] = Field(description="Deployments that it is about.")
    actor: str | None = Field(default=None, description="Who took the step.", examples=["j.doe"])
    job: str | None = Field(default=None, description="Job that was completed.", examples=["pretrain-a"])
    job_id: str | None = Field(default=None, description="Its id.", examples=[None])


class ReplanMessage(_Message):
    """A step of a decision on failures."""

    type: ReplanEvent = Field(description="The event.", examples=["replan.proposed"])
    data: ReplanNews


class UnknownName(_Part):
    """A name in reports that no part of the cluster has."""

    name: str = Field(description="The name.", examples=["rack-7-host-3"])
    source: str = Field(description="Who used it.", examples=["watch"])
    state: str = Field(description="State that was reported.", examples=["failed"])


class UnknownNames(_Part):
    """Names in reports on a cluster that none of its parts has."""

    cluster: Cluster
    count: int = Field(description="How many there are; ``names`` has the first.", examples=[1])
    names: list[UnknownName]
    remedy: str = Field(description="The remedy.", examples=["Store the name as an alias of a node."])


class UnknownNamesMessage(_Message):
    """Reports that name no part of their cluster."""

    type: Literal[EventType.UNKNOWN_NAME]
    data: UnknownNames


class PingData(_Part):
    """The endpoint that is tested."""

    endpoint: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])


class PingMessage(_Message):
    """A message that only tests an address."""

    type: Literal["webhook.ping"]
    data: PingData


Message = ReplanMessage | UnknownNamesMessage | PingMessage


def signed(
    _message_id: Annotated[
        str,
        Header(
            alias="webhook-id",
            description="Id of the message, the same at every attempt: who has seen it may ignore it.",
            examples=["msg_0f4d2c8e6b7a4c55"],
        ),
    ],
    _sent_at: Annotated[
        str,
        Header(
            alias="webhook-timestamp", description="Seconds since 1970 of this attempt.", examples=["1795910400"]
        ),
    ],
    _signature: Annotated[
        str,
        Header(
            alias="webhook-signature",
            description="v1, a comma and the HMAC-SHA256 of id, timestamp and body, joined by dots, in Base64.",
            examples=["v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4="],
        ),
    ],
) -> None:
    """Headers of every message, as Standard Webhooks says."""


def describe(webhooks: APIRouter) -> None:
    """Add the messages to the description; nobody calls them here."""

    def replan(message: ReplanMessage) -> None:
        """A decision on failures took a step; signed as Standard Webhooks says."""

    def unknown_names(message: UnknownNamesMessage) -> None:
        """Reports named no part of their cluster."""

    def ping(message: PingMessage) -> None:
        """Somebody tests the address."""

    for name, endpoint in (("replan", replan), (EventType.UNKNOWN_NAME, unknown_names), (PING, ping)):
        webhooks.add_api_route(
            name,
            endpoint,
            methods=["POST"],
            dependencies=[Depends(signed)],
            operation_id=endpoint.__name__,
            status_code=204,
            response_description="Taken.",
            responses={"4XX": {"description": "Not taken: it is sent again later, the more seldom the longer."}},
            tags=["webhooks"],
        )
