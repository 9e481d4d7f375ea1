"""Comparisons: a finished plan beside the own configuration, part by part."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ServiceDep
from app.comparing.documents import ComparisonDocument, ComparisonRequest
from app.services.planning.comparisons import compare_stored

router = APIRouter(tags=["comparisons"], route_class=BodyRoute)


@router.post("/comparisons")
def create_comparison(document: ComparisonRequest, service: ServiceDep) -> ComparisonDocument:
    """Compare configurations and other plans with a plan: step by parts, memory, days and dollars.

    Configurations are priced at once on the snapshot that the plan was made from, without a search; nothing is
    stored.
    """
    plan, found = compare_stored(service.read_sessions, request=document)
    return ComparisonDocument.make(plan, found, document.to_budget())
