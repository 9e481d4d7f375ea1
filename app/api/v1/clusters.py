"""Clusters and their nodes."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import Field

from app.answers.clusters import ClusterAnswer, ClusterSummary
from app.answers.topology import TopologyAnswer
from app.api.v1.answers import PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.kept_answers import kept_response
from app.api.v1.parameters import (
    ClusterPath,
    Cursor,
    ExpectedVersion,
    IdempotencyKey,
    Limit,
    NodePath,
    ServiceDep,
    etag,
)
from app.db.engine import transaction
from app.documents.cluster import ClusterDocument
from app.documents.nodes import GpusInUse, Labels, NodeDocument, Slowdown
from app.documents.reading import Document
from app.services import idempotency
from app.services.clusters import clusters
from app.services.clusters.clusters import NodeChange
from cluster_models.cluster.topology import NodeState

router = APIRouter(tags=["clusters"], route_class=BodyRoute)


class NodePatch(Document):
    """Changes to a node; a field left out stays."""

    state: NodeState | None = Field(
        None, description="Only ready and degraded nodes carry new ranks.", examples=["failed"]
    )
    compute_slowdown: Slowdown | None = Field(
        None,
        description="Measured step compute time over that of a healthy node of its kind; 1 = healthy.",
        examples=[1.2],
    )
    labels: Labels | None = Field(
        None, description="All labels of the node from now on.", examples=[{"leaf": "a", "rack": "r12"}]
    )
    gpus_in_use: GpusInUse | None = Field(
        None, description="Numbers of all GPUs that other jobs hold from now on.", examples=[[0, 1]]
    )


@router.get("/clusters")
def list_clusters(
    request: Request, service: ServiceDep, limit: Limit = 50, cursor: Cursor = None
) -> PageAnswer[ClusterSummary]:
    """Every stored cluster, by name."""
    with service.read_sessions() as session:
        page = clusters.list_clusters(session, limit=limit, cursor=cursor)
    return page_answer(request, page, ClusterSummary.from_value)


@router.post("/clusters", status_code=201)
def create_cluster(
    document: ClusterDocument, service: ServiceDep, response: Response, idempotency_key: IdempotencyKey = None
) -> ClusterAnswer:
    """Store a new cluster with its measurements; all of it or nothing."""
    keyed = idempotency.keyed("cluster", idempotency_key, document)
    with transaction(service.sessions) as session:
        cluster_id = idempotency.once(
            session,
            keyed,
            make=lambda: clusters.create_cluster(session, document=document).id,
            find=lambda made: clusters.find_cluster(session, reference=made),
        )
        record = clusters.get_cluster(session, reference=cluster_id)
    response.headers["Location"] = address("clusters", record.name)
    response.headers["ETag"] = etag(record.version)
    return ClusterAnswer.from_value(record)


@router.get("/clusters/{cluster}", response_model=ClusterAnswer)
def get_cluster(cluster: ClusterPath, service: ServiceDep) -> ClusterAnswer | Response:
    """A cluster at its newest version; the ETag names that version."""
    with service.read_sessions() as session:
        record = clusters.find_cluster(session, reference=cluster)
        return kept_response(
            record,
            lambda: ClusterAnswer.from_value(clusters.with_content(session, record)),
            tag=etag(record.version),
        )


@router.put("/clusters/{cluster}")
def replace_cluster(
    cluster: ClusterPath,
    document: ClusterDocument,
    service: ServiceDep,
    response: Response,
    expected: ExpectedVersion,
) -> ClusterAnswer:
    """Store new nodes and GPU kinds.

    Measurements are history and stay; those in the document that are new are added.
    """
    with transaction(service.sessions) as session:
        record = clusters.replace_cluster(session, reference=cluster, document=document, expected_version=expected)
    response.headers["ETag"] = etag(record.version)
    return ClusterAnswer.from_value(record)


@router.delete("/clusters/{cluster}", status_code=204)
def delete_cluster(cluster: ClusterPath, service: ServiceDep, expected: ExpectedVersion) -> None:
    """Forget a cluster and its measurements; snapshots and plans stay.

    409 while jobs run on it: their GPUs, reports and decisions would be forgotten as well.
    """
    with transaction(service.sessions) as session:
        clusters.delete_cluster(session, reference=cluster, expected_version=expected)


@router.get("/clusters/{cluster}/topology")
def get_topology(cluster: ClusterPath, service: ServiceDep, response: Response) -> TopologyAnswer:
    """How GPUs, nodes, scale-up domains and switches are joined, with nominal bandwidth."""
    with service.read_sessions() as session:
        record = clusters.get_cluster(session, reference=cluster)
    response.headers["ETag"] = etag(record.version)
    return TopologyAnswer.from_cluster(record.cluster)


@router.get("/clusters/{cluster}/nodes")
def list_nodes(cluster: ClusterPath, service: ServiceDep, response: Response) -> list[NodeDocument]:
    """The nodes of a cluster, in its order."""
    with service.read_sessions() as session:
        record = clusters.get_cluster(session, reference=cluster)
    response.headers["ETag"] = etag(record.version)
    return [NodeDocument.from_value(node) for node in record.cluster.nodes]


@router.get("/clusters/{cluster}/nodes/{node:path}")
def get_node(cluster: ClusterPath, node: NodePath, service: ServiceDep, response: Response) -> NodeDocument:
    """One node."""
    with service.read_sessions() as session:
        record = clusters.get_cluster(session, reference=cluster)
        found = clusters.find_node(record.cluster, node)
    response.headers["ETag"] = etag(record.version)
    return NodeDocument.from_value(found)


@router.patch("/clusters/{cluster}/nodes/{node:path}")
def change_node(
    cluster: ClusterPath,
    node: NodePath,
    patch: NodePatch,
    service: ServiceDep,
    response: Response,
    expected: ExpectedVersion,
) -> NodeDocument:
    """Change a node's state, slowdown, labels or GPUs in use; makes a new version of the cluster."""
    in_use = None if patch.gpus_in_use is None else tuple(sorted(patch.gpus_in_use))
    change = NodeChange(patch.state, patch.compute_slowdown, patch.labels, in_use)
    with transaction(service.sessions) as session:
        record, changed = clusters.change_node(
            session, reference=cluster, node=node, change=change, expected_version=expected
        )
    response.headers["ETag"] = etag(record.version)
    return NodeDocument.from_value(changed)
