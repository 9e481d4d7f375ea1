"""Stored plans beside configurations of the same run."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.comparing.documents import ComparisonRequest, OtherRequest
from app.comparing.standings import Contender, Standing, configuration_in, priced, standings
from app.services import plans
from app.services.field_paths import errors_under
from cluster_models.plan import Plan
from solver.problem import PlanningProblem


def compare_stored(session: Session, *, request: ComparisonRequest) -> tuple[Plan, tuple[Standing, ...]]:
    """The plan asked about, and how each of the others stands to it.

    Raises ``NotFound`` and ``NotReady`` of plans, and ``InvalidInput`` with its path in the request.
    """
    plan = plans.get_finished_plan(session, plan_id=request.plan)
    problem = plans.get_problem(session, plan_id=request.plan)
    contenders = []
    for index, other in enumerate(request.others):
        with errors_under(f"others[{index}]"):
            contenders.append(_contender(session, other, plan, problem, request.gpus))
    return plan, standings(plan, contenders)


def _contender(
    session: Session, other: OtherRequest, plan: Plan, problem: PlanningProblem, gpus: int | None
) -> Contender:
    if other.plan is not None:
        its = plans.get_finished_plan(session, plan_id=other.plan)
    elif other.configuration is not None:
        with errors_under("configuration"):
            its = priced(problem, other.configuration)
    else:
        assert other.launch is not None, "the request has one of the three"
        with errors_under("launch"):
            its = priced(problem, configuration_in(other.launch, plan, gpus=gpus))
    return Contender(other.name or f"{its.configuration.degrees} mb{its.configuration.micro_batch}", its)
