"""``meshwright fleet``: share the GPUs of a cluster out over jobs, in this process or on a service."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from app.cli.connection import service
from app.cli.files import (
    check_writable,
    naming,
    read_architecture,
    read_calibration,
    read_fleet,
    read_snapshot,
)
from app.cli.planning.outcomes import end_if, end_without_plan, hand_out_answer, searched
from app.cli.planning.remote_planning import followed
from app.cli.server import chosen_server
from app.cli.terminal import section, table
from app.documents.fleet import FleetPlanDocument, NoFleetPlanDocument, fleet_document
from app.documents.model import model_document
from app.presentation.fleet import (
    CURVE_COLUMNS,
    SHARE_COLUMNS,
    curve_cells,
    headline,
    proof,
    refusal,
    share_cells,
)
from app.services.field_paths import errors_under
from app.services.planning.fleet_problems import fleet_job, offered_pools, own_pools
from app.services.planning.requests import FleetDocument, FleetJobRequest
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.errors import InvalidInput
from cluster_models.fleet.jobs import FleetJob, FleetProblem
from cluster_models.fleet.plan import FleetPlan, NoFleetPlan
from solver.check.fleet import check_fleet
from solver.fleet.plan import plan_fleet
from solver.problem import SearchOptions


def run_fleet(
    fleet: str, *, cluster: str, options: SearchOptions, as_json: bool, everything: bool, output: Path | None
) -> None:
    """Search, and hand out the best fleet plan; ends with code 3 where there is none."""
    check_writable(output)
    document = read_fleet(fleet)
    if chosen_server().address is None:
        with naming(fleet):
            problem = _problem(document, cluster)
        result, cancelled = searched(plan_fleet, problem, options, check=check_fleet, refusal=NoFleetPlan)
    else:
        with service() as asked:
            found = followed(asked, cluster, document.model_dump(mode="json", exclude_unset=True), options)
        assert isinstance(found, FleetPlanDocument | NoFleetPlanDocument), "a fleet was asked for"
        result, cancelled = found.to_value(), False
    hand_out_fleet(result, as_json=as_json, everything=everything, output=output)
    end_if(cancelled)


def hand_out_fleet(
    result: FleetPlan | NoFleetPlan, *, as_json: bool, everything: bool, output: Path | None
) -> None:
    """Print and write a result; ends with code 3 where it is not a plan."""
    view = partial(_view, result, everything=everything) if isinstance(result, FleetPlan) else None
    hand_out_answer(fleet_document(result), view, as_json=as_json, output=output)
    if isinstance(result, NoFleetPlan):
        end_without_plan("no fleet plan", refusal(result))


def _problem(document: FleetDocument, cluster: str) -> FleetProblem:
    """The problem of files: models and calibrations are files here, or models of the catalogue."""
    if document.jobs is None:
        raise InvalidInput("jobs", None, "are missing", "list them, or ask a service for those of a stored cluster")
    fitted = _fitted(document)
    jobs = []
    for index, wanted in enumerate(document.jobs):
        jobs.append(_job(wanted, fitted, f"jobs[{index}]"))
    pools = (*own_pools(read_snapshot(cluster)), *offered_pools(document.offers))
    return FleetProblem(pools, tuple(jobs), document.fleet, document.budget_usd_per_hour)


def _fitted(document: FleetDocument) -> FittedParameters | None:
    given = document.calibration
    if given is None:
        return None
    return read_calibration(given) if isinstance(given, str) else given.to_fitted()


def _job(wanted: FleetJobRequest, fitted: FittedParameters | None, field: str) -> FleetJob:
    model = wanted.model
    with errors_under(f"{field}.model"):
        if isinstance(model, str):
            architecture = read_architecture(model)
        else:
            architecture = model_document(model).to_architecture()
    with errors_under(f"{field}.workload"):
        workload = wanted.workload.to_value(None if fitted is None else fitted.described)
    with errors_under(field):
        return fleet_job(wanted.name, architecture, workload, wanted, fitted)


def _view(plan: FleetPlan, *, everything: bool) -> RenderableType:
    parts: list[RenderableType] = [
        Text(headline(plan), style="bold"),
        table(SHARE_COLUMNS, map(share_cells, plan.shares)),
        section("How good is it?", Text(proof(plan))),
    ]
    if everything:
        parts.append(section("Steps by GPUs", table(CURVE_COLUMNS, map(curve_cells, plan.curves))))
    else:
        parts.append(Text("\n--verbose adds the step of each job by number of GPUs.", style="dim"))
    return Group(*parts)
