"""``meshwright runs`` on a service, elsewhere or in this process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rich.text import Text

from app.cli.connection import service
from app.cli.files import check_writable, is_path, read_plan, read_text, write_text
from app.cli.terminal import bullets, console, print_text, section, table
from app.client import Client, Refusal, every
from app.documents.plan import PlanDocument
from app.documents.run_reports import RunReportDocument
from app.presentation.figures import seconds
from app.presentation.measured_runs import (
    DRIFT_COLUMNS,
    RUN_COLUMNS,
    drift_cells,
    effect_lines,
    off,
    run_cells,
    summary,
    suspect_sentence,
)
from cluster_models.calibration.training_run import MemoryCounter
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Plan
from cluster_models.units import GIB
from readers.run_logs import read_run_log


@dataclass(frozen=True, slots=True)
class Measured:
    """The options of ``runs report`` that say what was measured, as typed."""

    log: str | None
    step_time: float | None
    memory_gib: float | None
    memory_counter: str
    note: str


def run_report(plan: str, measured: Measured, *, as_json: bool, database_url: str | None) -> None:
    """Send what was measured."""
    if (measured.log is None) == (measured.step_time is None):
        problem = "is given beside --step-time" if measured.log else "nothing was measured"
        raise InvalidInput("--log", measured.log, problem, "give --log or --step-time")
    if measured.memory_counter not in tuple(MemoryCounter):
        raise InvalidInput(
            "--memory-counter", measured.memory_counter, "is not a counter", ", ".join(MemoryCounter)
        )
    in_full = read_plan(plan) if is_path(plan) else None
    with service(database_url) as asked:
        body: dict[str, Any] = {"note": measured.note}
        body["plan"] = plan if in_full is None else PlanDocument.from_plan(in_full, timeline=False)
        if measured.log is None:
            body["step_time_s"] = measured.step_time
        else:
            body |= _of_log(measured.log, in_full or _plan_of(asked, plan))
        if measured.memory_gib is not None:
            body |= {"peak_memory_gib": measured.memory_gib, "memory_counter": measured.memory_counter}
        run = asked.create_run(RunReportDocument(**body))
    if as_json:
        print_text(run.model_dump_json(indent=2))
        return
    predicted = f"{seconds(run.predicted_step_time_s)} as predicted ({off(run.measured_over_predicted)})"
    console().print(f"{run.id}: {seconds(run.step_time_s)} a step, {predicted}")


def run_list(
    *, cluster: str | None, framework: str | None, most: int, as_json: bool, database_url: str | None
) -> None:
    """Print measured runs."""
    with service(database_url) as asked:
        found = list(islice(every(asked.list_runs, cluster=cluster, framework=framework), most))
    if as_json:
        print_text(json.dumps([each.model_dump(mode="json") for each in found], indent=2))
    elif not found:
        console().print("No runs; report one: meshwright runs report --plan ID --log FILE")
    else:
        console().print(table(RUN_COLUMNS, map(run_cells, found)))
        if any(each.within_interval is False for each in found):
            console().print("* outside of the interval in which the plan expected it")


def run_drift(*, cluster: str | None, framework: str | None, as_json: bool, database_url: str | None) -> None:
    """Print drift and what it points to."""
    with service(database_url) as asked:
        found = asked.get_drift(cluster=cluster, framework=framework)
    if as_json:
        print_text(found.model_dump_json(indent=2))
        return
    console().print(Text(summary(found), style="bold"))
    if found.suspects:
        console().print(section("Probably slow", bullets(map(suspect_sentence, found.suspects))))
    if found.groups:
        console().print(table(DRIFT_COLUMNS, map(drift_cells, found.groups)))


def run_recalibrate(
    wanted: Mapping[str, str | None], *, output: Path | None, store: bool, as_json: bool, database_url: str | None
) -> None:
    """Fit, say what it would change, and keep it where asked."""
    check_writable(output)
    with service(database_url) as asked:
        offered = asked.create_recalibration({name: value for name, value in wanted.items() if value is not None})
        document = offered.calibration
        if store:
            asked.create_calibration({"calibration": document.model_dump(mode="json", by_alias=True)})
    if output is not None:
        write_text(output, document.model_dump_json(indent=2, by_alias=True) + "\n")
    if as_json:
        print_text(offered.model_dump_json(indent=2))
        return
    console().print(Text(document.name, style="bold"))
    console().print(bullets(effect_lines(offered)))
    kept = (
        f"Kept: plan with it as {document.name}." if store else "Not kept; to accept it: --store, or --output FILE."
    )
    console().print(kept)


def _of_log(log: str, plan: Plan) -> dict[str, Any]:
    """Figures of a run of the plan, from its log."""
    each_s = plan.tokens_per_s_per_gpu * plan.time.step_s
    found = read_run_log(read_text(log), tokens_per_step_per_gpu=each_s)
    told: dict[str, Any] = {
        "step_time_s": found.times.median_s,
        "step_time_p10_s": found.times.low_s,
        "step_time_p90_s": found.times.high_s,
        "steps": found.times.steps,
    }
    if found.peak_memory_bytes is not None:
        told |= {"peak_memory_gib": found.peak_memory_bytes / GIB, "memory_counter": found.memory_counter}
    return told


def _plan_of(asked: Client, plan_id: str) -> Plan:
    """The plan, or running plan, of an id."""
    try:
        result = asked.get_plan(plan_id).result
    except Refusal as refusal:
        if refusal.kind != "not-found":
            raise
        result = asked.get_running_plan(plan_id).content
    if not isinstance(result, PlanDocument):
        raise InvalidInput("--plan", plan_id, "has no plan of training", "name one that succeeded")
    return result.to_value()
