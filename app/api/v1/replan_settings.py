"""How failures on a cluster are handled."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ClusterPath, ExpectedTag, ServiceDep, content_tag, tagged
from app.api.v1.replan_bodies import ReplanSettingsDocument
from app.db.engine import transaction
from app.services.clusters import clusters
from app.services.decisions import replan_settings
from app.services.preconditions import check_tag

router = APIRouter(tags=["failures"], route_class=BodyRoute)


@router.get("/clusters/{cluster}/replan-settings")
def get_replan_settings(cluster: ClusterPath, service: ServiceDep, response: Response) -> ReplanSettingsDocument:
    """The settings of a cluster; those never stored are at their defaults."""
    with service.read_sessions() as session:
        found = replan_settings.get_settings(session, reference=cluster)
    return _tagged(ReplanSettingsDocument.from_value(found), response)


@router.put("/clusters/{cluster}/replan-settings")
def replace_replan_settings(
    cluster: ClusterPath,
    document: ReplanSettingsDocument,
    service: ServiceDep,
    response: Response,
    expected: ExpectedTag,
) -> ReplanSettingsDocument:
    """Store these settings in place of all, absent fields at their defaults; open windows keep their end."""
    with transaction(service.sessions) as session:
        clusters.lock(session, reference=cluster, expected_version=None)
        before = ReplanSettingsDocument.from_value(replan_settings.get_settings(session, reference=cluster))
        check_tag("replan settings of", cluster, expected=expected, current=content_tag(before))
        stored = replan_settings.replace_settings(session, reference=cluster, settings=document.to_value())
    return _tagged(ReplanSettingsDocument.from_value(stored), response)


def _tagged(answer: ReplanSettingsDocument, response: Response) -> ReplanSettingsDocument:
    return tagged(response, answer)
