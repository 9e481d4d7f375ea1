"""Gains of one more node, faster links, more memory or an overlap for a plan."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import PlanPath, ServiceDep
from app.documents.sensitivity import SensitivityDocument, SensitivityRequest
from app.services.planning.sensitivity import sensitivity_of

router = APIRouter(tags=["plans"], route_class=BodyRoute)


@router.post("/plans/{plan}/sensitivity")
def analyse_sensitivity(plan: PlanPath, document: SensitivityRequest, service: ServiceDep) -> SensitivityDocument:
    """Search the fastest plans of a finished plan's problem on fewer GPUs and after changes; nothing is stored.

    Effects are those on the fastest plan found now, each with a step that no plan after the change beats.
    """
    found = sensitivity_of(service.read_sessions, plan_id=plan, time_limit_s=document.time_limit_s)
    return SensitivityDocument.from_value(found)
