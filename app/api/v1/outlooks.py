"""Outlooks: what can be said of a plan in seconds, before it is searched for."""

from __future__ import annotations

from fastapi import APIRouter

from app.answers.outlook import OutlookAnswer, ServingOutlookAnswer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ServiceDep
from app.documents.plan import NoPlanDocument
from app.documents.serving_plan import NoServingPlanDocument
from app.services.planning.pricing_beside import outlook_of
from app.services.planning.requests import AnyProblemRequest
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.training.plan import NoPlan
from solver.outlook import Outlook

router = APIRouter(tags=["plans"], route_class=BodyRoute)


@router.post("/outlooks")
def create_outlook(
    document: AnyProblemRequest, service: ServiceDep
) -> OutlookAnswer | NoPlanDocument | ServingOutlookAnswer | NoServingPlanDocument:
    """Say in seconds what fits, on how few GPUs, and about how fast; nothing is stored.

    For training the number of configurations that fit and a first plan; for serving (a workload that says kind:
    serving) the smallest replica of each model, and about how many GPUs the load takes within its limits.
    """
    match outlook_of(service.sessions, document):
        case NoPlan() as found:
            return NoPlanDocument.from_value(found)
        case Outlook() as found:
            return OutlookAnswer.from_value(found)
        case NoServingPlan() as found:
            return NoServingPlanDocument.from_no_plan(found)
        case found:
            return ServingOutlookAnswer.from_value(found)
