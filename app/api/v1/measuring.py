"""Pairs to measure next, with the scripts that do it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field

from app.answers.measuring import MeasuringAnswer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ClusterPath, ServiceDep
from app.documents.reading import Count, Document, Line, Positive, Text
from app.exports.measuring import Launcher, scripts
from app.exports.options import options_of
from app.services.clusters import measuring

MOST_PAIRS = 10_000
MOST_SECONDS = 30 * 86_400.0

router = APIRouter(tags=["measurements"], route_class=BodyRoute)


class MeasuringRequest(Document):
    """How much may be measured, and how tests are launched."""

    plan_id: Text | None = Field(
        None, description="Id of a finished plan that the figures are to make surer; absent = any plan."
    )
    most_pairs: Annotated[Count, Field(le=MOST_PAIRS)] = Field(200, description="Pairs of nodes at most.")
    most_seconds: Annotated[Positive, Field(ge=1, le=MOST_SECONDS)] = Field(
        4 * 3600.0, description="Seconds at most, as expected of all rounds."
    )
    launcher: Launcher = Field(
        Launcher.NONE, alias="for", description="Launcher to write scripts for; none = only say which pairs."
    )
    options: dict[Text, Line] = Field(
        default_factory=dict,
        max_length=20,
        description="Options of Kubernetes manifests: image, namespace, gpu_resource, job.",
        examples=[{"image": "registry.example/nccl-tests:2.17", "namespace": "bench"}],
    )


@router.post("/clusters/{cluster}/measuring-plan")
def plan_measurements(cluster: ClusterPath, document: MeasuringRequest, service: ServiceDep) -> MeasuringAnswer:
    """The pairs of nodes whose measurement would make plans surer, the most useful first; nothing is stored."""
    options = options_of(document.options)
    with service.read_sessions() as session:
        snapshot, plan = measuring.subject(session, reference=cluster, plan_id=document.plan_id)
    found = measuring.measuring_plan(
        snapshot, plan, most_pairs=document.most_pairs, most_seconds=document.most_seconds
    )
    return MeasuringAnswer.make(found, scripts(found, document.launcher, options))
