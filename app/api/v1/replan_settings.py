"""How failures on a cluster are handled."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ClusterPath, ServiceDep
from app.api.v1.replan_bodies import ReplanSettingsDocument
from app.db.engine import transaction
from app.services import replan_settings

router = APIRouter(tags=["failures"], route_class=BodyRoute)


@router.get("/clusters/{cluster}/replan-settings")
def get_replan_settings(cluster: ClusterPath, service: ServiceDep) -> ReplanSettingsDocument:
    """The settings of a cluster; those never stored are at their defaults."""
    with service.read_sessions() as session:
        found = replan_settings.get_settings(session, reference=cluster)
    return ReplanSettingsDocument.from_settings(found)


@router.put("/clusters/{cluster}/replan-settings")
def replace_replan_settings(
    cluster: ClusterPath, document: ReplanSettingsDocument, service: ServiceDep
) -> ReplanSettingsDocument:
    """Store these settings in place of all, absent fields at their defaults; open windows keep their end."""
    with transaction(service.sessions) as session:
        stored = replan_settings.replace_settings(session, reference=cluster, settings=document.to_settings())
    return ReplanSettingsDocument.from_settings(stored)
