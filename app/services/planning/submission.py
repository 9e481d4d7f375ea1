"""Plans of every kind, as requests ask for them: stored to be made, each in its turn."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.services import idempotency
from app.services.planning import fleet_plans, plans, reinforcement_plans, serving_plans, turns
from app.services.planning.planning_problems import make_problem, search_options
from app.services.planning.requests import (
    AnyPlanRequest,
    FleetPlanRequest,
    ReinforcementPlanRequest,
    ServingPlanRequest,
)
from app.settings import Settings
from solver.problem import SearchOptions


def submit_plan(
    session: Session, *, request: AnyPlanRequest, settings: Settings, idempotency_key: str | None = None
) -> str:
    """Store the plan that a request asks for, once for each key; returns its id."""
    options = search_options(
        request.options, default_limit_s=settings.default_time_limit_s, max_limit_s=settings.max_time_limit_s
    )

    def make() -> str:
        plan_id = _create(session, request, options)
        turns.take_turn(session, plan_id=plan_id, background=request.background)
        return plan_id

    keyed = idempotency.keyed("plan", idempotency_key, request)
    return idempotency.once(
        session, keyed, make=make, find=lambda plan_id: plans.get_plan(session, plan_id=plan_id)
    )


def _create(session: Session, request: AnyPlanRequest, options: SearchOptions) -> str:
    match request:
        case ServingPlanRequest():
            served = serving_plans.requested_problem(session, request=request)
            return serving_plans.create_serving_plan(session, problem=served, options=options)
        case ReinforcementPlanRequest():
            joint = reinforcement_plans.requested_problem(session, request=request)
            return reinforcement_plans.create_reinforcement_plan(session, problem=joint, options=options)
        case FleetPlanRequest():
            snapshot, fleet = fleet_plans.requested_problem(session, request=request)
            return fleet_plans.create_fleet_plan(session, snapshot=snapshot, problem=fleet, options=options)
    return plans.create_plan(session, problem=make_problem(session, request=request), options=options)
