"""Monitoring systems that prove who they are when they report."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from sqlalchemy.orm import Session

from app.answers.events import EventSourceAnswer, NewEventSourceAnswer
from app.api.v1.answers import address
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ClusterPath, ExpectedTag, IdempotencyKey, ServiceDep, content_tag, tagged
from app.api.v1.webhook_bodies import EventSourceDocument
from app.db.engine import transaction
from app.events.registry import adapter_named
from app.services import idempotency
from app.services.clusters import clusters
from app.services.health import event_sources
from app.services.health.event_sources import NewEventSource
from app.services.preconditions import check_tag

router = APIRouter(tags=["failures"], route_class=BodyRoute)

SourcePath = Annotated[
    str, Path(alias="source", max_length=100, description="Name or id of the source.", examples=["alertmanager-a"])
]


@router.post("/clusters/{cluster}/event-sources", status_code=201)
def create_event_source(
    cluster: ClusterPath,
    document: EventSourceDocument,
    service: ServiceDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> NewEventSourceAnswer:
    """Store a source of reports.  Its secret is in this answer only; from then on its format must be signed."""
    adapter = adapter_named(document.adapter).name
    with transaction(service.sessions) as session:
        found = clusters.find_cluster(session, reference=cluster)
        name, keyed = found.name, idempotency.keyed("event source", idempotency_key, found.id, document)

        def make() -> str:
            new, secret = document.name, document.secret
            made = event_sources.create_source(
                session, reference=found.id, name=new, adapter=adapter, secret=secret
            )
            return made.source.id

        def find(source_id: str) -> NewEventSource:
            return event_sources.get_new_source(session, source_id=source_id)

        made = find(idempotency.once(session, keyed, make=make, find=find))
    response.headers["Location"] = address("clusters", name, "event-sources", made.source.name)
    return NewEventSourceAnswer.make(made.source, name, secret=made.secret)


@router.get("/clusters/{cluster}/event-sources")
def list_event_sources(cluster: ClusterPath, service: ServiceDep) -> list[EventSourceAnswer]:
    """The sources of a cluster by name, without their secrets."""
    with service.read_sessions() as session:
        name = clusters.find_cluster(session, reference=cluster).name
        found = event_sources.list_sources(session, reference=cluster)
    return [EventSourceAnswer.make(each, name) for each in found]


@router.get("/clusters/{cluster}/event-sources/{source}")
def get_event_source(
    cluster: ClusterPath, source: SourcePath, service: ServiceDep, response: Response
) -> EventSourceAnswer:
    """One source, without its secret."""
    with service.read_sessions() as session:
        return tagged(response, _source(session, cluster, source))


def _source(session: Session, cluster: str, source: str) -> EventSourceAnswer:
    name = clusters.find_cluster(session, reference=cluster).name
    return EventSourceAnswer.make(event_sources.find_source(session, reference=cluster, source=source), name)


@router.delete("/clusters/{cluster}/event-sources/{source}", status_code=204)
def delete_event_source(
    cluster: ClusterPath, source: SourcePath, service: ServiceDep, expected: ExpectedTag
) -> None:
    """Forget a source; what it reported stays."""
    with transaction(service.sessions) as session:
        found = _source(session, cluster, source)
        check_tag("source", source, expected=expected, current=content_tag(found))
        event_sources.delete_source(session, source_id=found.id)
