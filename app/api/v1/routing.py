"""Routing statistics: how often tokens selected each expert, kept under a name."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy.orm import Session

from app.answers.routing import NoticeAnswer, RoutingAnswer, RoutingStored, RoutingSummary
from app.api.v1.answers import PageAnswer, address, page_answer
from app.api.v1.import_uploads import Received, received
from app.api.v1.parameters import Cursor, ExpectedVersion, IdempotencyKey, Limit, RoutingPath, ServiceDep, etag
from app.api.v1.routing_uploads import RoutingUpload, routing_bodies, routing_upload_of
from app.db.engine import transaction
from app.services import idempotency
from app.services.experts import routing
from app.services.experts.packed_counts import packed
from app.services.experts.routing import RoutingRecord
from cluster_models.errors import InvalidInput

router = APIRouter(tags=["experts"])
_Body = Annotated[Received, Depends(received)]


@router.post("/routing", status_code=201, openapi_extra=routing_bodies())
def create_routing(
    found: _Body, service: ServiceDep, response: Response, idempotency_key: IdempotencyKey = None
) -> RoutingStored:
    """Read counts of expert selections, from files of engines or as JSON, and store them under a free name."""
    upload = routing_upload_of(found)
    if upload.name is None:
        raise InvalidInput("name", None, "is missing", "name the model that was recorded: -F name=deepseek-r1")
    content = idempotency.fingerprint(packed(upload.workloads)) if idempotency_key else ""
    keyed = idempotency.keyed("routing", idempotency_key, upload.name, content)
    with transaction(service.sessions) as session:
        find = partial(_found, session)
        make = partial(_made, session, upload.name, upload)
        record = find(idempotency.once(session, keyed, make=make, find=find))
    response.headers["Location"] = address("routing", record.name)
    return _stored(record, upload, response)


def _made(session: Session, name: str, upload: RoutingUpload) -> str:
    return routing.create_routing(session, name=name, workloads=upload.workloads).name


def _found(session: Session, name: str) -> RoutingRecord:
    return routing.find_routing(session, name=name)


@router.get("/routing")
def list_routing(
    request: Request, service: ServiceDep, limit: Limit = 50, cursor: Cursor = None
) -> PageAnswer[RoutingSummary]:
    """Stored statistics by name, without their counts."""
    with service.read_sessions() as session:
        page = routing.list_routing(session, limit=limit, cursor=cursor)
    return page_answer(request, page, RoutingSummary.from_value)


@router.get("/routing/{name}")
def get_routing(
    name: RoutingPath,
    service: ServiceDep,
    response: Response,
    counts: Annotated[bool, Query(description="Whether to answer with the counts of all layers, too.")] = False,
    pairs: Annotated[
        bool, Query(description="With counts: also transitions and co-activation, which are large.")
    ] = False,
) -> RoutingAnswer:
    """Stored statistics: skew of each layer, how alike workloads are, and the counts where asked for."""
    with service.read_sessions() as session:
        stored = routing.get_routing(session, name=name, pairs=counts and pairs)
    response.headers["ETag"] = etag(stored.record.version)
    return RoutingAnswer.of(stored, counts=counts)


@router.put("/routing/{name}", openapi_extra=routing_bodies())
def replace_routing(
    name: RoutingPath, found: _Body, service: ServiceDep, response: Response, expected: ExpectedVersion
) -> RoutingStored:
    """Store other counts under a name; with ``add`` those of other workloads stay."""
    upload = routing_upload_of(found)
    if upload.name not in {None, name}:
        raise InvalidInput("name", upload.name, f"the address says {name!r}", "leave it out")
    with transaction(service.sessions) as session:
        record = routing.replace_routing(
            session, name=name, workloads=upload.workloads, expected_version=expected, keep_others=upload.add
        )
    return _stored(record, upload, response)


@router.delete("/routing/{name}", status_code=204)
def delete_routing(name: RoutingPath, service: ServiceDep, expected: ExpectedVersion) -> None:
    """Forget stored statistics."""
    with transaction(service.sessions) as session:
        routing.delete_routing(session, name=name, expected_version=expected)


def _stored(record: RoutingRecord, upload: RoutingUpload, response: Response) -> RoutingStored:
    response.headers["ETag"] = etag(record.version)
    notices = [NoticeAnswer.from_value(notice) for notice in upload.notices]
    return RoutingStored.from_value(record, notices=notices)
