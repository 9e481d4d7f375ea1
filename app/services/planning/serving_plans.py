"""Plans of serving: asked for and looked at; what else is done with plans is in ``app.services.planning.plans``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.engine import SessionFactory
from app.db.status import PlanKind, PlanStatus
from app.db.tables import PlanRow
from app.serialization import load
from app.services.clusters import snapshots
from app.services.field_paths import errors_under
from app.services.planning import models, plans
from app.services.planning.planning_problems import fitted_of, requested_snapshot
from app.services.planning.requests import ServingProblemRequest
from app.services.planning.serving_problems import Wanted, serving_problem
from app.services.planning.stored_counts import with_stored_counts
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingPlan
from solver.problem import SearchOptions
from solver.serving.problem import ServingProblem

_LONGEST_NAME = 200


def requested_problem(session: Session, *, request: ServingProblemRequest) -> ServingProblem:
    """The problem that a request describes, its snapshot stored; raises ``InvalidInput``."""
    with errors_under("model"):
        first = models.resolve_model(session, model=request.model)
    others: list[Wanted] = []
    for index, other in enumerate(request.others):
        with errors_under(f"others[{index}]"):
            architecture = models.resolve_model(session, model=other.model)
            others.append((architecture, with_stored_counts(session, other.workload)))
    fitted = fitted_of(session, request.calibration)
    snapshot = requested_snapshot(session, request)
    workload = with_stored_counts(session, request.workload)
    return serving_problem(snapshot, (first, workload), others, fitted=fitted)


def unstored_serving_problem(sessions: SessionFactory, *, request: ServingProblemRequest) -> ServingProblem:
    """The problem that a request describes, nothing of it kept; raises ``InvalidInput``."""
    with sessions() as session:
        return requested_problem(session, request=request)


def create_serving_plan(session: Session, *, problem: ServingProblem, options: SearchOptions) -> str:
    """Store a plan to be made; returns its id.  The caller queues it once the transaction is committed."""
    names = ", ".join(served.architecture.name for served in problem.models)[:_LONGEST_NAME]
    content = plans.content_of(problem)
    return plans.add_row(session, PlanKind.SERVING, problem.snapshot, names, content=content, options=options)


def get_serving_problem(session: Session, *, plan_id: str) -> ServingProblem:
    """Problem of a plan of serving; raises ``NotReady`` for one of training."""
    row = plans.row_of_kind(session, plan_id, PlanKind.SERVING)
    snapshot = snapshots.get_snapshot(session, snapshot_id=row.snapshot_id)
    return load(ServingProblem, row.problem | {"snapshot": snapshot})


def get_serving_result(session: Session, *, plan_id: str) -> ServingPlan | NoServingPlan | None:
    """Result of a plan of serving, or ``None`` while (or because) there is none; raises ``NotReady``."""
    return plans.result_of(session, plan_id, PlanKind.SERVING, ServingPlan, NoServingPlan)


@dataclass(frozen=True, slots=True)
class ServingOutput:
    """Output tokens a second of a finished plan of serving, its GPUs and its gap."""

    tokens_per_s: float
    gpus: int
    gap: float


def list_outputs(session: Session, *, plan_ids: Collection[str]) -> dict[str, ServingOutput]:
    """Outputs of those plans that are of serving and succeeded."""
    query = select(PlanRow.id, PlanRow.result).where(
        PlanRow.id.in_(plan_ids), PlanRow.kind == PlanKind.SERVING, PlanRow.status == PlanStatus.SUCCEEDED
    )
    return {
        plan_id: ServingOutput(found["tokens_per_s"], found["gpus"], found["certificate"]["gap"])
        for plan_id, found in session.execute(query)
        if found is not None
    }


def get_finished_serving_plan(session: Session, *, plan_id: str) -> ServingPlan:
    """The plan that was found; raises ``NotReady`` when there is none (yet)."""
    return plans.finished(session, plan_id, get_serving_result(session, plan_id=plan_id), ServingPlan)
