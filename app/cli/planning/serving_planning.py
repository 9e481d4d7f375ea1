"""``meshwright plan`` with a workload of serving: search in this process or on a service, and hand out."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from app.cli.endings import Ending, complain
from app.cli.files import (
    check_writable,
    naming,
    read_architecture,
    read_calibration,
    read_serving_workload,
    read_snapshot,
)
from app.cli.planning.exporting import write_folder
from app.cli.planning.outcomes import end_if, hand_out_answer, searched
from app.cli.planning.remote_planning import remote_serving_plan
from app.cli.planning.serving_options import ServingOptions
from app.cli.planning.serving_plan_view import exports_view, serving_plan_view
from app.cli.planning.serving_workload import served_workload
from app.cli.server import chosen_server
from app.cli.terminal import console
from app.documents.serving import ServingWorkloadDocument
from app.documents.serving_plan import serving_document
from app.exports.serving.contract import serving_refusal
from app.exports.serving.registry import SERVING_EXPORTS
from app.presentation.serving_refusal import nothing_serves
from app.services.planning.serving_problems import Wanted, serving_problem
from cluster_models.errors import InvalidInput
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingPlan
from solver.check.serving import check_serving_plan
from solver.problem import SearchOptions
from solver.serving.plan import plan_serving


def run_serving_plan(
    cluster: str,
    model: str,
    workload: str,
    *,
    serving: ServingOptions,
    options: SearchOptions,
    as_json: bool,
    output: Path | None,
    everything: bool,
) -> None:
    """Search here or on the chosen service, and hand out the best plan; Ctrl-C is as for plans of training.

    Ends with code 3 where nothing meets the limits and the load.
    """
    check_writable(output)
    document = served_workload(workload, serving)
    others = [_also(text) for text in serving.also]
    if chosen_server().address is None:
        snapshot, architecture = read_snapshot(cluster), read_architecture(model)
        more: list[Wanted] = [(read_architecture(name), load) for name, load in others]
        fitted = None if serving.calibration is None else read_calibration(serving.calibration)
        with naming(workload):
            problem = serving_problem(snapshot, (architecture, document), more, fitted=fitted)
        result, cancelled = searched(
            plan_serving, problem, options, check=check_serving_plan, refusal=NoServingPlan
        )
    else:
        first, *rest = [(model, document), *others]
        result, cancelled = remote_serving_plan(cluster, first, rest, options, serving.calibration), False
    plan = hand_out(result, as_json=as_json, output=output, everything=everything)
    if serving.exports is not None:
        _write_exports(plan, serving.exports, quiet=as_json)
    end_if(cancelled)


def hand_out(
    result: ServingPlan | NoServingPlan, *, as_json: bool, output: Path | None, everything: bool
) -> ServingPlan:
    """Print and write a result; ends with code 3 where it is not a plan."""
    view = None
    if isinstance(result, ServingPlan):
        view = partial(serving_plan_view, result, everything=everything, written=output)
    hand_out_answer(serving_document(result), view, as_json=as_json, output=output)
    if isinstance(result, NoServingPlan):
        _explain(result)
        raise typer.Exit(Ending.NO_PLAN)
    return result


def _also(text: str) -> tuple[str, ServingWorkloadDocument]:
    """Model and workload that an option names."""
    model, equals, workload = text.partition("=")
    if not equals:
        raise InvalidInput("--also", text, "is not MODEL=FILE", "write it as --also llama-3.1-8b=small.yaml")
    return model, read_serving_workload(workload)


def _write_exports(plan: ServingPlan, folder: Path, *, quiet: bool) -> None:
    """Every export that can take the plan in a folder of its name; the others are said with why."""
    refused: list[tuple[str, str]] = []
    written: list[str] = []
    for name, export in SERVING_EXPORTS.items():
        if (error := serving_refusal(export, plan)) is not None:
            refused.append((name, str(error)))
            continue
        write_folder(folder / name, name, export.files(plan))
        written.append(str(folder / name))
    if not quiet:
        console().print(exports_view(written, refused))


def _explain(answer: NoServingPlan) -> None:
    """Why nothing serves the load, on standard error."""
    refusal = nothing_serves(answer)
    complain(f"meshwright: no plan serves this: {refusal.reason}")
    if refusal.nearest:
        complain(refusal.nearest)
    for remedy in refusal.remedies:
        complain(f"remedy: {remedy}")
