"""Reports about the health of a cluster's parts, from people and from monitoring systems."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request

from app.access.ingress import raw_body, service_of_sender
from app.answers.events import (
    AdapterAnswer,
    ConditionsAnswer,
    EventAnswer,
    ReceivedAnswer,
    ReliabilityAnswer,
)
from app.api.v1.answers import PageAnswer, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ClusterPath, Cursor, Limit, ServiceDep
from app.db.engine import transaction
from app.documents.health_events import EventsBody
from app.events.reading import Adapter, ReportedEvent
from app.events.registry import ADAPTERS, adapter_named
from app.resources import Service
from app.services.decisions.reports import ReportAnswer
from app.services.errors import NotFound
from app.services.field_paths import errors_under
from app.services.health import health_events, incoming_reports, reliability

router = APIRouter(tags=["failures"], route_class=BodyRoute)


@router.post("/clusters/{cluster}/events")
def report_events(cluster: ClusterPath, document: EventsBody, service: ServiceDep) -> ReceivedAnswer:
    """Report what became of parts of a cluster, one or many; all are taken or none.

    A report that was known already is counted, not stored twice.  Where a job is touched, a replan is opened or
    joined; its safe answer is there with the reply.  401 where a source is named that signs its reports.
    """
    now, reported = datetime.now(UTC), []
    if not isinstance(document, list):
        reported.append((document.source, document.to_event(now)))
    else:
        for index, each in enumerate(document):
            with errors_under(f"[{index}]"):
                reported.append((each.source, each.to_event(now)))
    with service.read_sessions() as session:
        incoming_reports.check_unsigned(session, reference=cluster, sources={source for source, _ in reported})
    return ReceivedAnswer.make(_taken(service, cluster, reported, now))


def _adapter(
    name: Annotated[
        str,
        Path(
            alias="adapter",
            max_length=100,
            description="Format of the body, as listed under event-adapters.",
            examples=["alertmanager"],
        ),
    ],
) -> Adapter:
    """The adapter of that name; raises ``NotFound``."""
    if name not in ADAPTERS:
        raise NotFound("event adapter", name)
    return adapter_named(name)


@router.post(
    "/clusters/{cluster}/events/{adapter}",
    openapi_extra={
        "requestBody": {
            "description": "Message of the monitoring system, as it sends it.",
            "content": {"*/*": {"schema": {}}},
            "required": True,
        }
    },
)
def receive_events(
    request: Request,
    cluster: ClusterPath,
    adapter: Annotated[Adapter, Depends(_adapter)],
    body: Annotated[bytes, Depends(raw_body)],
    service: Annotated[Service, Depends(service_of_sender)],
    source: Annotated[
        str | None,
        Query(
            max_length=100,
            description="Name or id of the event source that sends it. The body must be signed with its secret "
            "(Standard Webhooks), or carry that as Authorization: Bearer. Needed where the cluster has a source of "
            "this format.",
            examples=["alertmanager-a"],
        ),
    ] = None,
) -> ReceivedAnswer:
    """Take a monitoring system's own message; entries that cannot be read are named and do not stop the others.

    401 where the message does not prove that its source sent it.
    """
    now = datetime.now(UTC)
    with service.read_sessions() as session:
        sender = incoming_reports.sender_of(
            session, reference=cluster, adapter=adapter.name, source=source, body=body, headers=request.headers
        )
    read = adapter.read(body, now)
    answer = _taken(service, cluster, [(sender, event) for event in read.events], now)
    return ReceivedAnswer.make(answer, read.unread)


@router.get("/clusters/{cluster}/events")
def list_events(
    request: Request,
    cluster: ClusterPath,
    service: ServiceDep,
    known: Annotated[
        bool | None, Query(description="Only reports about parts that the cluster has (true) or has not (false).")
    ] = None,
    replan: Annotated[
        str | None, Query(max_length=200, description="Only those that this replan decides on.")
    ] = None,
    device: Annotated[
        str | None, Query(max_length=200, description="Only those about hardware of this serial number or UUID.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[EventAnswer]:
    """The reports on a cluster, newest received first; those about unknown names are among them."""
    with service.read_sessions() as session:
        page = health_events.list_events(
            session, reference=cluster, limit=limit, cursor=cursor, known=known, replan_id=replan, device=device
        )
    return page_answer(request, page, EventAnswer.from_value)


@router.get("/clusters/{cluster}/conditions")
def list_conditions(cluster: ClusterPath, service: ServiceDep) -> ConditionsAnswer:
    """Conclusions from all reports: the parts that are not well now, and the nodes that should stay out."""
    now = datetime.now(UTC)
    with service.read_sessions() as session:
        conditions = health_events.conditions_now(session, reference=cluster, now=now)
        quarantine = health_events.quarantine_now(session, reference=cluster, now=now)
    return ConditionsAnswer.make(conditions, quarantine)


@router.get("/clusters/{cluster}/reliability")
def get_reliability(cluster: ClusterPath, service: ServiceDep) -> ReliabilityAnswer:
    """How often parts fail and how long they are out, measured from the cluster's own reports."""
    with service.read_sessions() as session:
        return ReliabilityAnswer.from_value(reliability.measure_reliability(session, reference=cluster))


@router.get("/event-adapters")
def list_event_adapters() -> list[AdapterAnswer]:
    """The monitoring systems whose messages are understood."""
    return [AdapterAnswer.from_value(each) for each in ADAPTERS.values()]


def _taken(
    service: Service, cluster: str, reported: list[tuple[str, ReportedEvent]], now: datetime
) -> ReportAnswer:
    """Store reports, and have the safe answer of the replan that they opened worked out."""
    with transaction(service.sessions) as session:
        answer = incoming_reports.receive(session, reference=cluster, reported=reported, now=now)
    if answer.wants_safe_answer and answer.replan_id is not None:
        service.answer_failures(answer.replan_id)
    return answer
