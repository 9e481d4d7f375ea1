"""Answers about the health of a cluster's parts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field

from app.answers.addresses import Links, Moment, address
from app.documents.reading import FieldProblem
from app.documents.values import Computed, Given, Holds, ValueAnswer
from app.events.reading import Adapter
from app.presentation.decision_reasons import keep_out
from app.services.decisions.reports import ReportAnswer
from app.services.health.event_sources import EventSource
from app.services.health.health_events import EventRecord
from app.services.health.reliability import KindReliability, Reliability
from cluster_models.health.conditions import Condition
from cluster_models.health.events import Entity, EntityKind, HealthState
from cluster_models.jobs.recovery import Quarantine


class EntityAnswer(ValueAnswer[Entity]):
    """A part of a cluster."""

    kind: EntityKind = Field(description="Kind of part.", examples=["node"])
    node: Annotated[str | None, Holds("node", empty_is_null=True)] = Field(
        description="Its node, of a link one end; null of a switch.", examples=["cnode2-004"]
    )
    part: Annotated[str | None, Holds("part", empty_is_null=True)] = Field(
        description="GPU, network card, other node of a link, label:place of a switch; null of a node.",
        examples=[None],
    )


class EventAnswer(ValueAnswer[EventRecord]):
    """A stored report."""

    id: str = Field(description="Its id here.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    entity: Annotated[EntityAnswer, Holds("event.entity")] = Field(description="The part that it is about.")
    told_name: str = Field(description="The name that its source used.", examples=["cnode2-004.example"])
    known: bool = Field(
        description="Whether the cluster has that part under its name or an alias; others change nothing.",
        examples=[True],
    )
    state: Annotated[HealthState, Holds("event.state")] = Field(
        description="State of the part.", examples=["failed"]
    )
    occurred_at: Annotated[Moment, Holds("event.occurred_at")]
    received_at: Moment
    source: Annotated[str, Holds("event.source")] = Field(description="Who told it.", examples=["alertmanager-a"])
    source_id: Annotated[str, Holds("event.source_id")] = Field(
        description="Its id at the source.", examples=["4711"]
    )
    text: Annotated[str, Holds("event.text")] = Field(
        description="The source's own words.", examples=["Fell off the bus."]
    )
    code: Annotated[str, Holds("event.code")] = Field(
        description="The source's name of the finding.", examples=["Xid 79"]
    )
    compute_slowdown: Annotated[float | None, Holds("event.compute_slowdown", empty_is_null=True)] = Field(
        description="Step compute time over that of a healthy one; null where not told.", examples=[None]
    )
    bandwidth_share: Annotated[float | None, Holds("event.bandwidth_share", empty_is_null=True)] = Field(
        description="Share of bandwidth that its links have left; null where not told.", examples=[None]
    )
    leave_by: Annotated[datetime | None, Holds("event.leave_by")] = Field(
        description="Time until which a draining part works, in UTC; null where it may go at any moment.",
        examples=[None],
    )
    device: Annotated[str | None, Holds("event.device", empty_is_null=True)] = Field(
        description="Serial number or UUID of the hardware; null where not told.", examples=["GPU-5e0c6d1f"]
    )
    repeats: int = Field(description="How often it came again.", examples=[0])
    replan: Annotated[str | None, Holds("replan_id")] = Field(
        description="Id of the replan that decides on it, if one does.", examples=[None]
    )


class UnreadAnswer(ValueAnswer[FieldProblem]):
    """An entry of a payload that could not be read while others could."""

    field: str = Field(description="Where it stands.", examples=["alerts[3].startsAt"])
    value: str = Field(description="Value of the field.", examples=["yesterday"])
    problem: str = Field(description="What is wrong with it.", examples=["is not a time"])
    remedy: str = Field(description="The remedy; may be empty.", examples=[""])


def _links(answer: ReportAnswer) -> dict[str, str]:
    return {} if answer.replan_id is None else {"replan": address("replans", answer.replan_id)}


class ReceivedAnswer(ValueAnswer[ReportAnswer]):
    """Outcome of reports."""

    stored: Annotated[int, Computed(lambda answer: len(answer.events))] = Field(
        description="Reports that are new.", examples=[1]
    )
    repeated: int = Field(description="Reports that were known already.", examples=[0])
    unknown: int = Field(description="New ones about parts that the cluster does not have.", examples=[0])
    events: Annotated[list[str], Computed(lambda answer: [each.id for each in answer.events])] = Field(
        description="Ids of the new ones.", examples=[["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"]]
    )
    unknown_names: Annotated[
        list[str], Computed(lambda answer: sorted({each.told_name for each in answer.events if not each.known}))
    ] = Field(description="Names among them of no part: store them as aliases.", examples=[[]])
    unread: Annotated[list[UnreadAnswer], Given()] = Field(
        description="Entries that could not be read.", examples=[[]]
    )
    replan: Annotated[str | None, Holds("replan_id")] = Field(
        description="Id of the replan that decides on them; null where they touch no job.", examples=[None]
    )
    links: Annotated[Links, Computed(_links)]

    @classmethod
    def make(cls, answer: ReportAnswer, unread: tuple[FieldProblem, ...] = ()) -> ReceivedAnswer:
        """The answer for stored reports, and for what could not be read of them."""
        return cls.from_value(answer, unread=[UnreadAnswer.from_value(each) for each in unread])


class ConditionAnswer(ValueAnswer[Condition]):
    """How a part of a cluster is that is not well."""

    entity: EntityAnswer = Field(description="The part.")
    state: HealthState = Field(description="How it is.", examples=["failed"])
    since: Moment
    failures: int = Field(description="Times it failed.", examples=[1])
    compute_slowdown: float = Field(
        description="Step compute time over a healthy one's; 1 = as fast.", examples=[1]
    )
    bandwidth_share: float = Field(description="Share of bandwidth that its links have left.", examples=[1])
    quiet_until: datetime | None = Field(
        description="A recovery was reported and is believed from then on, in UTC; null where none was.",
        examples=[None],
    )
    leave_by: datetime | None = Field(
        description="Until when a part that is to be left works, in UTC; it is suspected until it is decided on.",
        examples=[None],
    )
    source: str = Field(description="Who told it.", examples=["alertmanager-a"])
    code: str = Field(description="The source's name of the finding.", examples=["Xid 79"])
    text: str = Field(description="The source's own words.", examples=["Fell off the bus."])


class QuarantineAnswer(ValueAnswer[Quarantine]):
    """A node that failed too often."""

    node: str = Field(description="Its name.", examples=["cnode2-004"])
    failures: int = Field(description="How often it failed.", examples=[3])
    within_s: float = Field(description="In which time.", examples=[2592000.0])
    device: str = Field(description="Serial number of the part that failed; empty: the node did.", examples=[""])
    seen_on: list[str] = Field(description="Nodes on which that part failed.", examples=[[]])
    reason: Annotated[str, Computed(keep_out)] = Field(
        description="Why it should stay out.", examples=["cnode2-004 failed 3 times in 30 days."]
    )


class ConditionsAnswer(BaseModel):
    """The parts of a cluster that are not well."""

    conditions: list[ConditionAnswer] = Field(description="By kind and name.")
    quarantine: list[QuarantineAnswer] = Field(description="Nodes that should stay out until they are repaired.")

    @classmethod
    def make(cls, conditions: Iterable[Condition], quarantine: Iterable[Quarantine]) -> ConditionsAnswer:
        """The answer for domain values."""
        return cls(
            conditions=[ConditionAnswer.from_value(each) for each in conditions],
            quarantine=[QuarantineAnswer.from_value(each) for each in quarantine],
        )


class KindReliabilityAnswer(ValueAnswer[KindReliability]):
    """Outages of one kind of part."""

    kind: EntityKind = Field(description="Kind of part that failed.", examples=["gpu"])
    outages: int = Field(description="How often; what flaps is one outage.", examples=[7])
    repaired: int = Field(description="Those that are over.", examples=[6])
    between_s: float | None = Field(
        description="Mean seconds between two of the whole cluster; null where nothing failed.", examples=[370285.7]
    )
    repair_s: float | None = Field(
        description="Mean seconds until one was over; null where none is.", examples=[5400.0]
    )


class NodeFailuresAnswer(BaseModel):
    """How often one node failed."""

    node: str = Field(description="Its name.", examples=["cnode2-004"])
    failures: int = Field(description="Outages of it, its GPUs and its cards.", examples=[3])


def _worst(found: Reliability) -> list[NodeFailuresAnswer]:
    return [NodeFailuresAnswer(node=node, failures=count) for node, count in found.worst]


class ReliabilityAnswer(ValueAnswer[Reliability]):
    """How often parts of a cluster failed; only what was reported counts."""

    since: Moment
    node_days: float = Field(description="Nodes times days since then.", examples=[1440.0])
    failures: int = Field(description="Outages of nodes and of their GPUs and network cards.", examples=[9])
    failures_per_node_day: float = Field(description="As POST resilience takes it.", examples=[0.00625])
    failures_per_node_day_low: float = Field(
        description="The true rate lies above with 95 % (exact Poisson interval).", examples=[0.0033]
    )
    failures_per_node_day_high: float = Field(description="And below with 95 %.", examples=[0.0109])
    kinds: list[KindReliabilityAnswer] = Field(description="By kind of part.")
    worst: Annotated[list[NodeFailuresAnswer], Computed(_worst)] = Field(
        description="The nodes that failed most often."
    )


class AdapterAnswer(ValueAnswer[Adapter]):
    """A monitoring system whose reports are understood."""

    name: str = Field(description="Last part of the address it reports to.", examples=["alertmanager"])
    known_as: str = Field(description="For people.", examples=["Prometheus Alertmanager webhook"])
    example: str = Field(description="A body to try it with.", examples=['{"node": "n3", "state": "failed"}'])


class EventSourceAnswer(ValueAnswer[EventSource]):
    """A monitoring system that reports to a cluster."""

    id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    name: str = Field(description="Its name; reports carry it as their source.", examples=["alertmanager-a"])
    adapter: str = Field(description="Format that it speaks.", examples=["alertmanager"])
    created_at: Moment
    links: Annotated[Links, Given()]

    @classmethod
    def make(cls, source: EventSource, cluster: str, **given: Any) -> Self:
        """The answer for a source of a cluster of that name."""
        links = {
            "self": address("clusters", cluster, "event-sources", source.name),
            "report_to": f"{address('clusters', cluster, 'events', source.adapter)}?source={source.id}",
        }
        return cls.from_value(source, links=links, **given)


class NewEventSourceAnswer(EventSourceAnswer):
    """A source with its secret, which is shown this once."""

    secret: Annotated[str, Given()] = Field(
        description="Secret that reports are signed with (Standard Webhooks), or carry as Authorization: Bearer.",
        examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )
