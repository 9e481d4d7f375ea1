"""Every page of the service, and the files that pages use."""

from __future__ import annotations

from importlib import resources
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.resources import service_of
from app.services.clusters import clusters
from app.services.decisions import replans
from app.services.errors import NotFound
from app.services.planning import plans
from app.web.calibration.calibration_pages import router as calibration_router
from app.web.clusters.cluster_pages import router as cluster_router
from app.web.clusters.import_pages import router as import_router
from app.web.clusters.measuring_pages import router as measuring_router
from app.web.error_pages import PageRoute
from app.web.examples import plan_examples
from app.web.experts.expert_moves_pages import router as moves_router
from app.web.experts.expert_pages import router as expert_router
from app.web.failures.failure_pages import router as failure_router
from app.web.failures.job_pages import router as job_router
from app.web.failures.replan import replan_line
from app.web.failures.replan_pages import router as replan_router
from app.web.failures.sweep_pages import router as sweep_router
from app.web.failures.what_if_pages import router as what_if_router
from app.web.feedback.run_pages import router as run_router
from app.web.kept_pages import router as kept_router
from app.web.listing import cluster_line, plan_lines
from app.web.planning.comparison_pages import router as comparison_router
from app.web.planning.fleet_pages import router as fleet_router
from app.web.planning.framework_pages import router as framework_router
from app.web.planning.new_plan_pages import router as new_plan_router
from app.web.planning.plan_pages import router as plan_router
from app.web.planning.portfolio_pages import router as portfolio_router
from app.web.planning.reinforcement_pages import router as reinforcement_router
from app.web.planning.sensitivity_pages import router as sensitivity_router
from app.web.planning.serving_plan_pages import router as serving_router
from app.web.rendering import SECURITY_HEADERS, page
from app.web.service.audit_pages import router as audit_router
from app.web.service.key_pages import router as key_router
from app.web.service.sign_in_pages import router as sign_in_router
from app.web.service.webhook_pages import router as webhook_router

RECENT: Final = 8
"""Plans, clusters and decisions that the start page looks at."""
_FILES: Final = {
    "pages.css": "text/css",
    "pictures.js": "text/javascript",
    "progress.js": "text/javascript",
    "form.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/")
def home(request: Request) -> Response:
    """The start page."""
    with service_of(request).read_sessions() as session:
        recent = plans.list_plans(session, limit=RECENT)
        lines = plan_lines(session, recent.items)
        known = clusters.list_clusters(session, limit=RECENT)
        decisions = replans.list_replans(session, limit=RECENT)
    return page(
        request,
        "home.html",
        plans=lines,
        clusters=[cluster_line(record) for record in known.items],
        replans=[replan_line(each) for each in decisions.items if each.is_open],
        story=None if recent.items else next(iter(plan_examples(serving=False)), None),
    )


@router.get("/static/{name}")
def static_file(name: str) -> Response:
    """A style sheet, script or icon of ours."""
    if name not in _FILES:
        raise NotFound("file", name)
    content = resources.files("app.web").joinpath("static", name).read_bytes()
    return Response(content, media_type=_FILES[name], headers={**SECURITY_HEADERS, "Cache-Control": "no-cache"})


router.include_router(sign_in_router)
router.include_router(audit_router)
router.include_router(kept_router)
router.include_router(key_router)
# before the plans: an address there may be any id
router.include_router(serving_router)
router.include_router(fleet_router)
router.include_router(reinforcement_router)
router.include_router(comparison_router)
router.include_router(sensitivity_router)
router.include_router(new_plan_router)
router.include_router(plan_router)
router.include_router(portfolio_router)
# before the clusters: an address there may be any name
router.include_router(import_router)
router.include_router(measuring_router)
router.include_router(job_router)
router.include_router(failure_router)
router.include_router(sweep_router)
router.include_router(what_if_router)
router.include_router(replan_router)
router.include_router(webhook_router)
router.include_router(cluster_router)
router.include_router(calibration_router)
router.include_router(run_router)
router.include_router(framework_router)
# before the statistics, for the same reason
router.include_router(moves_router)
router.include_router(expert_router)
