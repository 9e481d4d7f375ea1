"""Predictions of serving: what a configuration given in full would do under its load."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ServiceDep
from app.db.engine import transaction
from app.documents.serving_prediction import ServingPredictionDocument
from app.services.planning.requests import ServingPredictionRequest
from app.services.planning.serving_predictions import requested_serving_prediction

router = APIRouter(tags=["predictions"], route_class=BodyRoute)


@router.post("/serving-predictions")
def create_serving_prediction(document: ServingPredictionRequest, service: ServiceDep) -> ServingPredictionDocument:
    """Price a serving configuration at once; one that does not fit is priced, too."""
    with transaction(service.sessions) as session:
        return requested_serving_prediction(session, request=document)
