"""Outlooks: what can be said of a plan in seconds, before it is searched for."""

from __future__ import annotations

from fastapi import APIRouter

from app.answers.outlook import OutlookAnswer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ServiceDep
from app.documents.plan import NoPlanDocument
from app.services.planning.planning_problems import unstored_problem
from app.services.planning.requests import ProblemRequest
from cluster_models.training.plan import NoPlan
from solver.outlook import outlook

router = APIRouter(tags=["plans"], route_class=BodyRoute)


@router.post("/outlooks")
def create_outlook(document: ProblemRequest, service: ServiceDep) -> OutlookAnswer | NoPlanDocument:
    """Say in seconds how many configurations fit, on how few GPUs, and about how fast; nothing is stored."""
    found = outlook(unstored_problem(service.sessions, request=document))
    return NoPlanDocument.from_value(found) if isinstance(found, NoPlan) else OutlookAnswer.from_value(found)
