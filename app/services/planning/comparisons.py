"""Stored plans beside configurations of the same run."""

from __future__ import annotations

from functools import partial

from sqlalchemy.orm import Session

from app.comparing.documents import ComparisonRequest, OtherRequest
from app.comparing.standings import Contender, Standing, configuration_in, priced, standings
from app.db.engine import SessionFactory
from app.services.field_paths import errors_under
from app.services.planning import plans
from app.services.planning.pricing_beside import predict_for_request
from app.services.running import running_plans
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Plan
from solver.problem import PlanningProblem


def compare_stored(sessions: SessionFactory, *, request: ComparisonRequest) -> tuple[Plan, tuple[Standing, ...]]:
    """The plan asked about, and how each of the others stands to it.

    Raises ``NotFound`` and ``NotReady`` of plans, and ``InvalidInput`` with its path in the request.
    """
    with sessions() as session:
        plan = plans.get_finished_plan(session, plan_id=request.plan)
        problem = plans.get_problem(session, plan_id=request.plan)
        stored = [_stored(session, other, f"others[{index}]") for index, other in enumerate(request.others)]
    contenders = []
    for index, other in enumerate(request.others):
        with errors_under(f"others[{index}]"):
            its = stored[index] or _priced(other, plan, problem, request)
        configuration = its.configuration
        name = other.name or f"{configuration.degrees} mb{configuration.micro_batch}"
        contenders.append(Contender(name, its))
    return plan, standings(plan, contenders)


def _stored(session: Session, other: OtherRequest, path: str) -> Plan | None:
    """The other plan where it is stored, by itself or as what a job runs by."""
    if other.plan:
        return plans.get_finished_plan(session, plan_id=other.plan)
    if not other.running_plan:
        return None
    found = running_plans.get_content(session, running_plan_id=other.running_plan)
    if not isinstance(found, Plan):
        problem = "is a plan of serving"
        raise InvalidInput(f"{path}.running_plan", other.running_plan, problem, "compare plans of training")
    return found


def _priced(other: OtherRequest, plan: Plan, problem: PlanningProblem, request: ComparisonRequest) -> Plan:
    """The other plan, in full or as arguments, priced on the snapshot of ``plan``."""
    predicted = partial(predict_for_request, alike=len(request.others))
    if other.configuration is not None:
        with errors_under("configuration"):
            return priced(problem, other.configuration, plan, predicted=predicted)
    assert other.launch is not None, "the request has one of the four"
    with errors_under("launch"):
        given = configuration_in(other.launch, plan, gpus=request.gpus)
        return priced(problem, given, plan, predicted=predicted)
