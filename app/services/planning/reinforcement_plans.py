"""Joint plans of reinforcement learning: asked for and looked at; the rest is in ``services.planning.plans``."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.db.status import PlanKind
from app.documents.reinforcement import ReinforcementWorkloadDocument
from app.serialization import jsonable, load
from app.services.clusters import snapshots
from app.services.field_paths import errors_under
from app.services.planning import models, plans
from app.services.planning.planning_problems import fitted_of, requested_snapshot, search_options
from app.services.planning.requests import ReinforcementPlanRequest
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.model.architecture import Architecture
from cluster_models.reinforcement.plan import NoReinforcementPlan, ReinforcementPlan
from cluster_models.reinforcement.workload import ReinforcementWorkload
from solver.problem import SearchOptions
from solver.reinforcement.parts import check_problem
from solver.reinforcement.problem import ReinforcementProblem


def submit_reinforcement_plan(
    session: Session,
    *,
    request: ReinforcementPlanRequest,
    default_limit_s: float,
    max_limit_s: float,
    idempotency_key: str | None = None,
) -> str:
    """Store the plan that a request asks for, once for each key; returns its id."""
    options = search_options(request.options, default_limit_s=default_limit_s, max_limit_s=max_limit_s)

    def make() -> str:
        return _create(session, problem=requested_problem(session, request=request), options=options)

    return plans.submit_once(session, request, idempotency_key, make)


def requested_problem(session: Session, *, request: ReinforcementPlanRequest) -> ReinforcementProblem:
    """The problem that a request describes, its snapshot stored; raises ``InvalidInput``."""
    with errors_under("model"):
        architecture = models.resolve_model(session, model=request.model)
    fitted = fitted_of(session, request.calibration)
    return reinforcement_problem(requested_snapshot(session, request), architecture, request.workload, fitted)


def reinforcement_problem(
    snapshot: ClusterSnapshot,
    architecture: Architecture,
    workload: ReinforcementWorkloadDocument,
    fitted: FittedParameters | None,
) -> ReinforcementProblem:
    """The problem of a document; raises ``InvalidInput`` where it contradicts itself."""
    with errors_under("workload"):
        value = workload.to_value(None if fitted is None else fitted.described)
    problem = ReinforcementProblem(snapshot, architecture, value, fitted)
    check_problem(problem)
    return problem


def get_reinforcement_problem(session: Session, *, plan_id: str) -> ReinforcementProblem:
    """The problem of such a plan; raises ``NotReady``."""
    row = plans.row_of_kind(session, plan_id, PlanKind.REINFORCEMENT)
    fitted = row.problem.get("fitted")
    return ReinforcementProblem(
        snapshot=snapshots.get_snapshot(session, snapshot_id=row.snapshot_id),
        architecture=load(Architecture, row.problem["architecture"]),
        workload=load(ReinforcementWorkload, row.problem["reinforcement"]),
        fitted=None if fitted is None else load(FittedParameters, fitted),
    )


def get_reinforcement_result(session: Session, *, plan_id: str) -> ReinforcementPlan | NoReinforcementPlan | None:
    """Result of such a plan, or ``None`` while (or because) there is none; raises ``NotReady``."""
    return plans.result_of(session, plan_id, PlanKind.REINFORCEMENT, ReinforcementPlan, NoReinforcementPlan)


def get_finished_reinforcement_plan(session: Session, *, plan_id: str) -> ReinforcementPlan:
    """The plan that was found; raises ``NotReady`` when there is none (yet)."""
    return plans.finished(session, plan_id, get_reinforcement_result(session, plan_id=plan_id), ReinforcementPlan)


def _create(session: Session, *, problem: ReinforcementProblem, options: SearchOptions) -> str:
    content = {
        "reinforcement": jsonable(problem.workload),
        "architecture": jsonable(problem.architecture),
        "fitted": jsonable(problem.fitted),
    }
    name = problem.architecture.name
    kind = PlanKind.REINFORCEMENT
    return plans.add_row(session, kind, problem.snapshot, name, content=content, options=options)
