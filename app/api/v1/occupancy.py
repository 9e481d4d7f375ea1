"""GPUs of a cluster with the jobs that hold them, and the nodes kept for jobs that lose one."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.answers.occupancy import OccupancyAnswer, SparesAnswer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ClusterPath, ExpectedTag, ServiceDep, content_tag, tagged
from app.api.v1.replan_bodies import SpareNodesDocument
from app.db.engine import transaction
from app.services.clusters import clusters
from app.services.preconditions import check_tag
from app.services.running import occupancy

router = APIRouter(tags=["jobs"], route_class=BodyRoute)


@router.get("/clusters/{cluster}/occupancy")
def get_occupancy(cluster: ClusterPath, service: ServiceDep) -> OccupancyAnswer:
    """Every GPU that a job holds; no GPU is ever held by two."""
    with service.read_sessions() as session:
        gpus = clusters.find_cluster(session, reference=cluster).gpu_count
        held = occupancy.list_held(session, reference=cluster)
    return OccupancyAnswer.make(gpus, held)


@router.get("/clusters/{cluster}/spares")
def list_spares(cluster: ClusterPath, service: ServiceDep, response: Response) -> SparesAnswer:
    """The nodes kept as spares, and which of them are free."""
    with service.read_sessions() as session:
        answer = SparesAnswer.make(occupancy.list_spares(session, reference=cluster))
    return tagged(response, answer)


@router.put("/clusters/{cluster}/spares")
def replace_spares(
    cluster: ClusterPath,
    document: SpareNodesDocument,
    service: ServiceDep,
    response: Response,
    expected: ExpectedTag,
) -> SparesAnswer:
    """Keep these nodes as spares in place of all; nodes that a job holds serve once they are free."""
    with transaction(service.sessions) as session:
        clusters.lock(session, reference=cluster, expected_version=None)
        before = SparesAnswer.make(occupancy.list_spares(session, reference=cluster))
        check_tag("spares of", cluster, expected=expected, current=content_tag(before))
        answer = SparesAnswer.make(occupancy.replace_spares(session, reference=cluster, nodes=document.nodes))
    return tagged(response, answer)
