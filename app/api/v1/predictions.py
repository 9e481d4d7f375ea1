"""Predictions: what a configuration given in full would do."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ServiceDep
from app.db.engine import transaction
from app.documents.plan import PlanDocument
from app.services.field_paths import errors_under
from app.services.planning.planning_problems import make_problem
from app.services.planning.pricing_beside import predict_for_request
from app.services.planning.requests import PredictionRequest
from cluster_models.units import GIB

router = APIRouter(tags=["predictions"], route_class=BodyRoute)


class PredictionAnswer(BaseModel):
    """A prediction."""

    model_config = ConfigDict(defer_build=True)

    fits: bool = Field(description="Whether every GPU's memory suffices.", examples=[True])
    missing_gib: float = Field(
        description="Memory that the fullest GPU lacks, in GiB; 0 where it fits.", examples=[0.0]
    )
    snapshot: str = Field(description="Snapshot it is made from.", examples=["7f6d1c0f9a3b2e45"])
    result: PlanDocument = Field(description="The configuration as a plan; its certificate covers no search.")


@router.post("/predictions")
def create_prediction(document: PredictionRequest, service: ServiceDep) -> PredictionAnswer:
    """Price a configuration at once, without a search; a configuration that does not fit is priced, too."""
    with transaction(service.sessions) as session:
        problem = make_problem(session, request=document)
    with errors_under("configuration"):
        prediction = predict_for_request(problem, document=document.configuration)
    return PredictionAnswer(
        fits=prediction.missing_bytes == 0,
        missing_gib=prediction.missing_bytes / GIB,
        snapshot=problem.snapshot.id,
        result=PlanDocument.from_plan(prediction.plan, timeline=document.timeline),
    )
