"""Measurements of a cluster's links, and snapshots of both."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.answers.clusters import (
    LinkClassAnswer,
    MeasurementsAdded,
    SlowLinkAnswer,
    SnapshotAnswer,
    SnapshotSummary,
)
from app.api.v1.answers import PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import (
    ClusterPath,
    Cursor,
    ExpectedVersion,
    IdempotencyKey,
    Limit,
    ServiceDep,
    SnapshotPath,
    etag,
)
from app.db.engine import transaction
from app.documents.cluster import ClusterDocument
from app.documents.measurements import MeasurementDocument, MeasurementsDocument
from app.documents.remarks import RemarkDocument
from app.presentation.cluster import cluster_figures
from app.services import idempotency
from app.services.clusters import clusters, measurements, snapshots
from app.services.clusters.measurements import MeasurementFilter
from cluster_models.cluster.measurements import SampleStatus

router = APIRouter(tags=["measurements"], route_class=BodyRoute)


@router.post("/clusters/{cluster}/measurements", status_code=201)
def add_measurements(
    cluster: ClusterPath,
    document: MeasurementsDocument,
    service: ServiceDep,
    response: Response,
    expected: ExpectedVersion,
    idempotency_key: IdempotencyKey = None,
) -> MeasurementsAdded:
    """Add measurements, one by one or as tables; all of them or none.

    Those that the cluster has already are not added again, so that a request can be repeated.
    """
    with service.read_sessions() as session:
        read = snapshots.read_measurements(session, reference=cluster, document=document)
    keyed = idempotency.keyed("measurements", idempotency_key, read.cluster_id, document)
    with transaction(service.sessions) as session:
        idempotency.claim(session, keyed)
        added = snapshots.add_measurements(
            session, reference=cluster, document=document, read=read, expected_version=expected
        )
    response.headers["Location"] = address("clusters", cluster, "measurements")
    response.headers["ETag"] = etag(added.version)
    return MeasurementsAdded.from_value(added)


@router.get("/clusters/{cluster}/measurements")
def list_measurements(
    request: Request,
    cluster: ClusterPath,
    service: ServiceDep,
    node: Annotated[
        str | None, Query(max_length=200, description="Only links of this node.", examples=["cnode2-001"])
    ] = None,
    status: Annotated[SampleStatus | None, Query(description="Only samples with this status.")] = None,
    since_version: Annotated[
        int | None,
        Query(ge=0, le=2**31 - 1, description="Only samples that came after this version of the cluster."),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[MeasurementDocument]:
    """The samples of a cluster in the order they came."""
    with service.read_sessions() as session:
        page = measurements.list_measurements(
            session,
            cluster_id=clusters.find_cluster(session, reference=cluster).id,
            which=MeasurementFilter(node, status, since_version),
            limit=limit,
            cursor=cursor,
        )
    return page_answer(request, page, MeasurementDocument.from_value)


@router.get("/clusters/{cluster}/snapshots")
def list_snapshots(
    request: Request, cluster: ClusterPath, service: ServiceDep, limit: Limit = 50, cursor: Cursor = None
) -> PageAnswer[SnapshotSummary]:
    """Snapshots of a cluster, newest first; every plan makes one, unless nothing changed."""
    with service.read_sessions() as session:
        page = snapshots.list_snapshots(session, reference=cluster, limit=limit, cursor=cursor)
    return page_answer(request, page, SnapshotSummary.from_value)


@router.post("/clusters/{cluster}/snapshots", status_code=201)
def take_snapshot(cluster: ClusterPath, service: ServiceDep, response: Response) -> SnapshotSummary:
    """Freeze a cluster as it is now; an equal snapshot is the same one."""
    with transaction(service.sessions) as session:
        snapshot = snapshots.take_snapshot(session, reference=cluster)
        record = snapshots.find_snapshot(session, snapshot_id=snapshot.id)
    response.headers["Location"] = address("snapshots", record.id)
    return SnapshotSummary.from_value(record)


@router.get("/snapshots/{snapshot}")
def get_snapshot(snapshot: SnapshotPath, service: ServiceDep) -> SnapshotAnswer:
    """A snapshot with all its measurements, and what looks wrong about them."""
    with service.read_sessions() as session:
        record = snapshots.find_snapshot(session, snapshot_id=snapshot)
        content = snapshots.get_snapshot(session, snapshot_id=snapshot)
    document = ClusterDocument.from_cluster(content.cluster, content.samples)
    figures = cluster_figures(content)
    return SnapshotAnswer.from_value(
        record,
        cluster=document,
        suspicions=list(map(RemarkDocument.from_value, figures.doubts)),
        link_classes=list(map(LinkClassAnswer.from_value, figures.classes)),
        slow_links=list(map(SlowLinkAnswer.from_value, figures.slow)),
    )
