"""GPUs of a cluster with the jobs that hold them, and the nodes kept for jobs that lose one."""

from __future__ import annotations

from itertools import groupby

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ClusterPath, ExpectedTag, ServiceDep, content_tag
from app.api.v1.replan_bodies import SpareNodesDocument
from app.db.engine import transaction
from app.services import clusters, occupancy
from app.services.occupancy import HeldGpu, SpareNode
from app.services.preconditions import check_tag

router = APIRouter(tags=["jobs"], route_class=BodyRoute)


class HeldGpuAnswer(BaseModel):
    """A GPU that a job holds."""

    gpu: int = Field(description="Its number as nvidia-smi shows it.", examples=[0])
    job: str = Field(description="Name of the job.", examples=["pretrain-a"])
    job_id: str = Field(description="Id of the job.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    claimed: bool = Field(
        description="Whether it changes hands for a plan that was approved and is not applied yet.",
        examples=[False],
    )
    releasing: bool = Field(description="Whether it is free once that plan is applied.", examples=[False])


class HeldNodeAnswer(BaseModel):
    """A node of which jobs hold GPUs."""

    node: str = Field(description="Its name.", examples=["cnode2-001"])
    gpus: list[HeldGpuAnswer] = Field(description="Its GPUs that jobs hold, by number.")


class OccupancyAnswer(BaseModel):
    """What jobs hold of a cluster."""

    gpus: int = Field(description="GPUs of the cluster.", examples=[128])
    gpus_held: int = Field(description="Of these, those that jobs hold.", examples=[64])
    nodes: list[HeldNodeAnswer] = Field(description="Nodes of which jobs hold GPUs, by name.")


class SpareNodeAnswer(BaseModel):
    """A node that is kept as a spare."""

    node: str = Field(description="Its name.", examples=["cnode2-016"])
    free: bool = Field(
        description="Whether it works, is in no quarantine, and no job holds one of its GPUs.", examples=[True]
    )


class SparesAnswer(BaseModel):
    """The nodes that are kept for jobs that lose one."""

    spares: list[SpareNodeAnswer] = Field(description="By name.")

    @classmethod
    def make(cls, spares: tuple[SpareNode, ...]) -> SparesAnswer:
        """The answer for stored spares."""
        return cls(spares=[SpareNodeAnswer.model_validate(each, from_attributes=True) for each in spares])


@router.get("/clusters/{cluster}/occupancy")
def get_occupancy(cluster: ClusterPath, service: ServiceDep) -> OccupancyAnswer:
    """Every GPU that a job holds; no GPU is ever held by two."""
    with service.read_sessions() as session:
        gpus = clusters.find_cluster(session, reference=cluster).gpu_count
        held = occupancy.list_held(session, reference=cluster)
    by_node = groupby(held, key=lambda each: each.node)
    nodes = [HeldNodeAnswer(node=node, gpus=[_gpu(each) for each in rows]) for node, rows in by_node]
    return OccupancyAnswer(gpus=gpus, gpus_held=len(held), nodes=nodes)


@router.get("/clusters/{cluster}/spares")
def list_spares(cluster: ClusterPath, service: ServiceDep, response: Response) -> SparesAnswer:
    """The nodes kept as spares, and which of them are free."""
    with service.read_sessions() as session:
        answer = SparesAnswer.make(occupancy.list_spares(session, reference=cluster))
    response.headers["ETag"] = content_tag(answer)
    return answer


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
    response.headers["ETag"] = content_tag(answer)
    return answer


def _gpu(held: HeldGpu) -> HeldGpuAnswer:
    return HeldGpuAnswer(
        gpu=held.gpu, job=held.job_name, job_id=held.job_id, claimed=held.claimed, releasing=held.releasing
    )
