"""Fleet plans: asked for and looked at; what else is done with plans is in ``app.services.planning.plans``."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.running_tables import RunningJobRow, RunningPlanRow
from app.db.status import PlanKind, RunningPlanStatus
from app.documents.fleet import FleetLimits
from app.serialization import jsonable, load
from app.services.clusters import clusters
from app.services.field_paths import errors_under
from app.services.planning import models, plans
from app.services.planning.fleet_problems import fleet_job, offered_pools, own_pools
from app.services.planning.planning_problems import fitted_of, requested_snapshot
from app.services.planning.requests import FleetPlanRequest
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.fleet.jobs import FleetJob, FleetProblem
from cluster_models.fleet.plan import FleetPlan, NoFleetPlan
from cluster_models.training.plan import Plan
from solver.problem import SearchOptions

_LONGEST_NAME = 200


def requested_problem(session: Session, *, request: FleetPlanRequest) -> tuple[ClusterSnapshot, FleetProblem]:
    """The cluster and the problem that a request describes, the snapshot stored; raises ``InvalidInput``.

    All GPUs are given out anew, those too that jobs of the cluster hold now.
    """
    fitted = fitted_of(session, request.calibration)
    jobs = _running(session, request, fitted) if request.jobs is None else _requested(session, request, fitted)
    with errors_under("cluster"):
        snapshot = requested_snapshot(session, request.model_copy(update={"as_stored": request.snapshot is None}))
    pools = (*own_pools(snapshot), *offered_pools(request.offers))
    return snapshot, FleetProblem(pools, jobs, request.fleet, request.budget_usd_per_hour)


def get_fleet_result(session: Session, *, plan_id: str) -> FleetPlan | NoFleetPlan | None:
    """Result of a fleet plan, or ``None`` while (or because) there is none; raises ``NotReady``."""
    return plans.result_of(session, plan_id, PlanKind.FLEET, FleetPlan, NoFleetPlan)


def create_fleet_plan(
    session: Session, *, snapshot: ClusterSnapshot, problem: FleetProblem, options: SearchOptions
) -> str:
    """Store a fleet plan to be made; returns its id.  The caller queues it once the transaction is committed."""
    names = ", ".join(dict.fromkeys(job.name for job in problem.jobs))[:_LONGEST_NAME]
    content = {"fleet": jsonable(problem)}
    return plans.add_row(session, PlanKind.FLEET, snapshot, names, content=content, options=options)


def _requested(
    session: Session, request: FleetPlanRequest, fitted: FittedParameters | None
) -> tuple[FleetJob, ...]:
    found = []
    for index, wanted in enumerate(request.jobs or ()):
        field = f"jobs[{index}]"
        with errors_under(f"{field}.model"):
            architecture = models.resolve_model(session, model=wanted.model)
        with errors_under(f"{field}.workload"):
            workload = wanted.workload.to_value(None if fitted is None else fitted.described)
        with errors_under(field):
            found.append(fleet_job(wanted.name, architecture, workload, wanted, fitted))
    return tuple(found)


def _running(session: Session, request: FleetPlanRequest, fitted: FittedParameters | None) -> tuple[FleetJob, ...]:
    """The jobs that run on the stored cluster, with their weights and the workloads of their plans."""
    if not isinstance(request.cluster, str):
        raise InvalidInput("jobs", None, "are missing", "a cluster in full has no jobs of its own: list them")
    cluster_id = clusters.find_cluster(session, reference=request.cluster).id
    query = (
        select(RunningJobRow.name, RunningJobRow.weight, RunningPlanRow.plan)
        .join(RunningPlanRow, RunningPlanRow.job_id == RunningJobRow.id)
        .where(RunningJobRow.cluster_id == cluster_id, RunningPlanRow.status == RunningPlanStatus.APPLIED)
        .order_by(RunningJobRow.name)
    )
    found = []
    for name, weight, document in session.execute(query):
        plan = load(Plan, document)
        if plan.architecture is not None and plan.workload is not None:
            limits = FleetLimits(weight=weight)
            found.append(fleet_job(name, plan.architecture, plan.workload, limits, fitted))
    if not found:
        raise InvalidInput("jobs", None, "are missing, and none runs on the cluster", "list them")
    return tuple(found)
