"""Whether the sender of a request may use a route, and has not used up the tenant's quotas; before each route."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from fastapi import HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session

from app.access import tenants
from app.access.principals import NOBODY, Principal
from app.access.requests import PRINCIPAL, principal_of
from app.access.rights import name_of, right_of
from app.access.tenants import Exceeded, Quotas
from app.resources import Service, service_of
from app.services.errors import Forbidden, NotFound
from app.settings import Settings

QUEUES_PLANS: Final = frozenset(
    {
        "fleet_pages.ask_for_fleet_plan",
        "reinforcement_pages.ask_for_reinforcement_plan",
        "new_plan_pages.ask_for_plan",
        "new_plan_pages.try_story",
        "plans.create_plan",
        "portfolio_pages.ask_for_portfolio",
        "portfolios.create_portfolio",
        "serving_plan_pages.ask_for_serving_plan",
    }
)
ASKS_WHAT_IFS: Final = frozenset({"sweep_pages.ask_for_sweep", "sweeps.create_sweep"})
STORES_SAMPLES: Final = frozenset(
    {
        "cluster_pages.import_cluster",
        "clusters.create_cluster",
        "clusters.replace_cluster",
        "import_pages.look_or_store",
        "imports.import_files",
        "measurements.add_measurements",
    }
)


async def check_right(request: Request) -> None:
    """Raise ``Forbidden`` without the scope that the route asks for, and 429 over a quota."""
    endpoint, principal = request.scope["endpoint"], principal_of(request)
    right = right_of(endpoint)
    if right.scope is not None and right.scope not in principal.scopes:
        raise Forbidden(right.scope)
    name = name_of(endpoint)
    if name in QUEUES_PLANS:
        await _check(request, principal, lambda session, limits: tenants.full_queue(session, limits, now=_now()))
    elif name in ASKS_WHAT_IFS:
        await _check(request, principal, lambda session, limits: tenants.all_solved(session, limits, now=_now()))
    elif name in STORES_SAMPLES:
        await _check(request, principal, tenants.full_store)


def refuse_full_queue(request: Request, session: Session) -> None:
    """Raise 429 where the plans that a request has just stored are more than may wait, so that none is."""
    principal = request.scope.get("state", {}).get(PRINCIPAL, NOBODY)
    if not principal.limited_as or principal is NOBODY:
        return
    limits = quotas_of(session, principal.tenant_id, service_of(request).settings)
    if (exceeded := tenants.overfull_queue(session, limits)) is not None:
        raise _too_many(exceeded)


async def _check(
    request: Request, principal: Principal, exceeded: Callable[[Session, Quotas], Exceeded | None]
) -> None:
    """Raise 429 where a quota is used up; whoever needs no key has none."""
    if not principal.limited_as or principal is NOBODY:
        return
    found = await run_in_threadpool(_exceeded, service_of(request), principal, exceeded)
    if found is not None:
        raise _too_many(found)


def _too_many(found: Exceeded) -> HTTPException:
    return HTTPException(429, f"{found.what}.", headers={"Retry-After": str(found.again_after_s)})


def _exceeded(
    service: Service, principal: Principal, exceeded: Callable[[Session, Quotas], Exceeded | None]
) -> Exceeded | None:
    with service.read_sessions() as session:
        return exceeded(session, quotas_of(session, principal.tenant_id, service.settings))


def quotas_of(session: Session, tenant: str, settings: Settings) -> Quotas:
    """Quotas of a tenant: its own, and those of the settings where it has none."""
    common = Quotas(settings.max_queued_plans, settings.max_solver_s_per_day, settings.max_stored_samples)
    try:
        return tenants.get_tenant(session, name=tenant).quotas.or_else(common)
    except NotFound:
        return common


def _now() -> datetime:
    return datetime.now(UTC)
