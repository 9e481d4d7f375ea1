"""Joint plans of reinforcement learning: asked for and looked at; the rest is in ``services.planning.plans``."""

from __future__ import annotations

from sqlalchemy.orm import Session

from app.db.status import PlanKind
from app.documents.reinforcement import ReinforcementWorkloadDocument
from app.serialization import load
from app.services.clusters import snapshots
from app.services.field_paths import errors_under
from app.services.planning import models, plans
from app.services.planning.planning_problems import fitted_of, requested_snapshot
from app.services.planning.requests import ReinforcementPlanRequest
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.model.architecture import Architecture
from cluster_models.reinforcement.plan import NoReinforcementPlan, ReinforcementPlan
from solver.problem import SearchOptions
from solver.reinforcement.parts import check_problem
from solver.reinforcement.problem import ReinforcementProblem


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


def create_reinforcement_plan(session: Session, *, problem: ReinforcementProblem, options: SearchOptions) -> str:
    """Store a plan to be made; returns its id.  The caller queues it once the transaction is committed."""
    content = plans.content_of(problem)
    content["reinforcement"] = content.pop("workload")  # names the kind
    name = problem.architecture.name
    kind = PlanKind.REINFORCEMENT
    return plans.add_row(session, kind, problem.snapshot, name, content=content, options=options)


def get_reinforcement_problem(session: Session, *, plan_id: str) -> ReinforcementProblem:
    """The problem of such a plan; raises ``NotReady``."""
    row = plans.row_of_kind(session, plan_id, PlanKind.REINFORCEMENT)
    snapshot = snapshots.get_snapshot(session, snapshot_id=row.snapshot_id)
    return load(
        ReinforcementProblem, row.problem | {"snapshot": snapshot, "workload": row.problem["reinforcement"]}
    )


def get_reinforcement_result(session: Session, *, plan_id: str) -> ReinforcementPlan | NoReinforcementPlan | None:
    """Result of such a plan, or ``None`` while (or because) there is none; raises ``NotReady``."""
    return plans.result_of(session, plan_id, PlanKind.REINFORCEMENT, ReinforcementPlan, NoReinforcementPlan)


def get_finished_reinforcement_plan(session: Session, *, plan_id: str) -> ReinforcementPlan:
    """The plan that was found; raises ``NotReady`` when there is none (yet)."""
    return plans.finished(session, plan_id, get_reinforcement_result(session, plan_id=plan_id), ReinforcementPlan)
