"""Plans and predictions of a service elsewhere, from files that are here or by names that it knows.

The service reads what is in the files, and says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from app.answers.plans import PlanEvent, ResultDocument
from app.cli.connection import service
from app.cli.endings import Failed
from app.cli.files import is_path, naming, read_text
from app.cli.progress import progress_line, shown_progress
from app.cli.server import chosen_server
from app.cli.terminal import error_console
from app.client import Client
from app.db.status import OPEN_STATUSES
from app.documents.plan import NoPlanDocument, PlanDocument
from app.documents.reading import parse_text
from app.documents.routing import RoutedWorkloadDocument
from app.documents.serving import ServingWorkloadDocument
from app.documents.serving_plan import NoServingPlanDocument, ServingPlanDocument
from app.documents.serving_prediction import ServingPredictionDocument
from app.routing.reading import loads_of
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingPlan
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.units import GIB
from solver.problem import Progress, SearchOptions

if TYPE_CHECKING:
    from app.cli.planning.planning import ProblemFiles

ServedModel = tuple[str, ServingWorkloadDocument]
"""File or name of a model, and the requests to it."""


def remote_plan(files: ProblemFiles, options: SearchOptions) -> Plan | NoPlan:
    """The plan of training that the chosen service finds; Ctrl-C calls it off there."""
    with service() as asked:
        found = _result(asked, _training(files) | {"options": _changed(options)})
    assert isinstance(found, PlanDocument | NoPlanDocument), "the workload is of training"
    return found.to_value()


def remote_prediction(files: ProblemFiles, configuration: str) -> tuple[Plan, float]:
    """The configuration as the chosen service prices it, and the bytes that its fullest GPU lacks."""
    with service() as asked:
        told = asked.create_prediction(_training(files) | {"configuration": _content(configuration)})
    return told.result.to_value(), told.missing_gib * GIB


def remote_serving_plan(
    cluster: str,
    first: ServedModel,
    others: Sequence[ServedModel],
    options: SearchOptions,
    calibration: str | None = None,
) -> ServingPlan | NoServingPlan:
    """The plan of serving that the chosen service finds for several models; the goal is that of the first."""
    body = {"cluster": named_or_in_full(cluster), **_served(first), "options": _changed(options)}
    body["others"] = [_served(other) for other in others]
    body |= calibration_part(calibration)
    with service() as asked:
        found = _result(asked, body)
    assert isinstance(found, ServingPlanDocument | NoServingPlanDocument), "the workload is of serving"
    return found.to_plan()


def remote_serving_prediction(
    cluster: str, served: ServedModel, configuration: str, calibration: str | None = None
) -> ServingPredictionDocument:
    """The serving configuration as the chosen service prices it."""
    body = {
        "cluster": named_or_in_full(cluster),
        **_served(served),
        "configuration": _content(configuration),
        **calibration_part(calibration),
    }
    with service() as asked:
        return asked.create_serving_prediction(body)


def calibration_part(given: str | None) -> dict[str, Any]:
    """The part of a request that names a calibration, or has it in full."""
    return {} if given is None else {"calibration": named_or_in_full(given)}


def followed(asked: Client, cluster: str, body: Mapping[str, Any], options: SearchOptions) -> ResultDocument:
    """Result of a plan of whatever kind on a cluster, once its search has ended."""
    return _result(asked, {**body, "cluster": named_or_in_full(cluster), "options": _changed(options)})


def _result(asked: Client, body: Mapping[str, Any]) -> ResultDocument:
    """Result of a request once its search has ended; raises ``Failed`` where it has none."""
    accepted = asked.create_plan({**body, "background": chosen_server().background})
    try:
        with shown_progress(error_console(), _line) as show:
            for event in asked.stream_plan(accepted.id):
                show(PlanEvent.model_validate_json(event.data, extra="ignore"))
        plan = asked.get_plan(accepted.id)
    except KeyboardInterrupt:
        asked.cancel_plan(accepted.id)
        raise
    if plan.error is not None:
        raise Failed(f"plan {plan.id} failed: {plan.error.problem} {plan.error.remedy}")
    if plan.result is None:
        raise Failed(f"plan {plan.id} is {plan.status}")
    return plan.result


def _served(wanted: ServedModel) -> dict[str, Any]:
    model, workload = wanted
    return {"model": named_or_in_full(model), "workload": workload.model_dump(mode="json", exclude_unset=True)}


def _line(event: PlanEvent) -> Text:
    if event.progress is not None:
        return progress_line(Progress(**event.progress.model_dump()))
    return Text("waiting for a worker" if event.status in OPEN_STATUSES else event.status)


def _training(files: ProblemFiles) -> dict[str, Any]:
    """The request for a problem of training."""
    workload = dict(_content(files.workload))
    if files.framework is not None:
        workload["framework"] = _content(files.framework)
    if files.choice is not None:
        workload["choice"] = files.choice
    body = {
        "cluster": named_or_in_full(files.cluster),
        "model": named_or_in_full(files.model),
        "workload": workload,
        "keep_expert_order": files.routed.keep_order,
    }
    body |= calibration_part(files.calibration)
    if files.routed.files:
        workloads = map(RoutedWorkloadDocument.from_workload, loads_of(*files.routed.files))
        body["routing"] = {"workloads": [each.model_dump(mode="json") for each in workloads]}
    if (weights := files.routed.weight_of_each()) is not None:
        body["routing_weights"] = weights
    return body


def _changed(options: SearchOptions) -> dict[str, Any]:
    """The options that are not at the solver's default: the service has defaults of its own."""
    default = asdict(SearchOptions())
    return {name: value for name, value in asdict(options).items() if value != default[name]}


def named_or_in_full(file_or_name: str) -> Any:
    """A name as it is, or the content of a file."""
    return _content(file_or_name) if is_path(file_or_name) else file_or_name


def _content(path: str) -> Any:
    """The value in a file of JSON or YAML."""
    with naming(path):
        return parse_text(read_text(path), what=Path(path).name)
