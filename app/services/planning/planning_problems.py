"""From a request to a problem that the solver can take, refused here where that is cheap to see."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy.orm import Session

from app.db.engine import SessionFactory
from app.documents.calibration import CalibrationDocument
from app.documents.reading import FieldProblem, InvalidDocument, close_name
from app.documents.routing import planned_loads
from app.services.calibration import calibrations
from app.services.clusters import clusters, live_clusters, snapshots
from app.services.experts import routing
from app.services.field_paths import errors_under
from app.services.planning import models
from app.services.planning.requests import ClusterRequest, OptionsDocument, ProblemRequest
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.links.model import effective_links
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import ExpertLoads
from solver.degrees.legality import check_workload
from solver.placement.cluster_fabrics import fabrics
from solver.power_caps import under_least_cap
from solver.problem import PlanningProblem, SearchOptions


def make_problem(session: Session, *, request: ProblemRequest) -> PlanningProblem:
    """The problem that a request describes, its snapshot stored; raises ``InvalidInput`` with all that is wrong."""
    with errors_under("model"):
        architecture = models.resolve_model(session, model=request.model)
    fitted = fitted_of(session, request.calibration)
    with errors_under("workload"):
        workload = request.workload.to_value(None if fitted is None else fitted.described)
    counted = _routing(session, request, architecture)
    snapshot = requested_snapshot(session, request)
    problem = PlanningProblem(snapshot, architecture, workload, fitted, counted, request.keep_expert_order)
    check_problem(problem)
    return problem


def unstored_problem(sessions: SessionFactory, *, request: ProblemRequest) -> PlanningProblem:
    """The problem that a request describes, nothing of it kept; raises ``InvalidInput`` like ``make_problem``."""
    with sessions() as session:
        return make_problem(session, request=request)


def search_options(options: OptionsDocument, *, default_limit_s: float, max_limit_s: float) -> SearchOptions:
    """The solver's options; raises ``InvalidInput`` for more time than the service gives."""
    given = options.time_limit_s
    if given is not None and given > max_limit_s:
        raise InvalidInput("options.time_limit_s", given, f"is more than the {max_limit_s:g} s this service allows")
    return SearchOptions(
        time_limit_s=default_limit_s if given is None else given,
        effort=options.effort,
        seed=options.seed,
        gap=options.gap,
        backend=options.backend,
        alternatives=options.alternatives,
    )


def check_problem(problem: PlanningProblem) -> None:
    """Raise ``InvalidInput`` where no search is needed to see that the problem contradicts itself."""
    names = [node.name for node in problem.snapshot.cluster.nodes]
    workload = problem.workload
    named = {"avoid_nodes": workload.avoid_nodes, "placement.require_nodes": workload.placement.require_nodes}
    unknown = [
        FieldProblem(f"workload.{field}[{index}]", name, "is not a node of the cluster", close_name(name, names))
        for field, given in named.items()
        for index, name in enumerate(given)
        if name not in names
    ]
    if unknown:
        raise InvalidDocument(unknown)
    links = effective_links(problem.snapshot)
    problem = under_least_cap(problem)
    check_workload(problem, fabrics(problem.snapshot, problem.workload, links))


def _routing(session: Session, request: ProblemRequest, model: Architecture) -> tuple[ExpertLoads, ...]:
    given = request.routing
    if given is None:
        if request.routing_weights is not None:
            names = list(request.routing_weights)
            raise InvalidInput("routing_weights", names, "weigh workloads of routing", "give routing as well")
        return ()
    if isinstance(given, str):
        return planned_loads(routing.resolve_routing(session, name=given), request.routing_weights, model)
    with errors_under("routing"):
        workloads = given.to_workloads()
    return planned_loads(workloads, request.routing_weights, model)


def fitted_of(session: Session, given: str | CalibrationDocument | None) -> FittedParameters | None:
    """The parameters of a calibration by name or in full; raises ``InvalidInput``."""
    if given is None:
        return None
    if isinstance(given, str):
        return calibrations.resolve_calibration(session, name=given)
    with errors_under("calibration"):
        return given.to_fitted()


def requested_snapshot(session: Session, request: ClusterRequest) -> ClusterSnapshot:
    """The cluster of a request, a snapshot of it stored; raises ``InvalidInput``."""
    if not isinstance(request.cluster, str):
        if request.snapshot is not None:
            raise InvalidInput("snapshot", request.snapshot, "goes with a stored cluster only", "leave it out")
        with errors_under("cluster"):
            cluster = request.cluster.to_cluster()
            return snapshots.store_inline(session, cluster=cluster, samples=request.cluster.to_samples(cluster))
    if request.snapshot is None:
        if request.as_stored:
            return snapshots.take_snapshot(session, reference=request.cluster)
        return live_clusters.snapshot_for_new_job(session, reference=request.cluster, now=datetime.now(UTC))
    snapshot = snapshots.get_snapshot(session, snapshot_id=request.snapshot)
    name = clusters.find_cluster(session, reference=request.cluster).name
    if snapshot.cluster.name != name:
        raise InvalidInput(
            "snapshot", request.snapshot, f"is one of cluster {snapshot.cluster.name!r}, not of {name!r}"
        )
    return snapshot
