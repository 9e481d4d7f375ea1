"""Experiments: which runs to measure next, so that predictions become sure."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ServiceDep
from app.db.engine import transaction
from app.documents.experiments import ExperimentsDocument
from app.services.calibration.experiments import experiments_for
from app.services.planning.planning_problems import make_problem
from app.services.planning.requests import ExperimentsRequest

router = APIRouter(tags=["calibrations"], route_class=BodyRoute)


@router.post("/experiments")
def create_experiments(document: ExperimentsRequest, service: ServiceDep) -> ExperimentsDocument:
    """Choose the runs that would tell most of the parameters by which a plan decides; nothing is stored."""
    with transaction(service.sessions) as session:
        problem = make_problem(session, request=document)
    return experiments_for(problem, runs=document.runs)
