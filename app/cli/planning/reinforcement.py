"""``meshwright plan`` with a workload of reinforcement learning: here or on a service, and handed out."""

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
    read_reinforcement_workload,
    read_snapshot,
)
from app.cli.planning.outcomes import end_if, end_without_plan, hand_out_answer, searched
from app.cli.planning.remote_planning import calibration_part, followed, named_or_in_full
from app.cli.server import chosen_server
from app.cli.terminal import section, table
from app.documents.reinforcement_plan import (
    NoReinforcementPlanDocument,
    ReinforcementPlanDocument,
    reinforcement_document,
)
from app.presentation.reinforcement import (
    PART_COLUMNS,
    SPLIT_COLUMNS,
    STEP_COLUMNS,
    headline,
    part_rows,
    proof,
    refusal,
    split_cells,
    step_rows,
)
from app.services.planning.reinforcement_plans import reinforcement_problem
from cluster_models.reinforcement.plan import NoReinforcementPlan, ReinforcementPlan
from solver.check.reinforcement import check_reinforcement
from solver.problem import SearchOptions
from solver.reinforcement.plan import plan_reinforcement


def run_reinforcement_plan(
    cluster: str,
    model: str,
    workload: str,
    *,
    calibration: str | None,
    options: SearchOptions,
    as_json: bool,
    output: Path | None,
    everything: bool,
) -> None:
    """Search, and hand out the best plan; ends with code 3 where nothing fits."""
    check_writable(output)
    document = read_reinforcement_workload(workload)
    if chosen_server().address is None:
        snapshot, architecture = read_snapshot(cluster), read_architecture(model)
        fitted = None if calibration is None else read_calibration(calibration)
        with naming(workload):
            problem = reinforcement_problem(snapshot, architecture, document, fitted)
        result, cancelled = searched(
            plan_reinforcement, problem, options, check=check_reinforcement, refusal=NoReinforcementPlan
        )
    else:
        body = {"model": named_or_in_full(model), "workload": document.model_dump(mode="json", exclude_unset=True)}
        with service() as asked:
            found = followed(asked, cluster, body | calibration_part(calibration), options)
        assert isinstance(found, ReinforcementPlanDocument | NoReinforcementPlanDocument), "it was asked for"
        result, cancelled = found.to_value(), False
    hand_out_reinforcement(result, as_json=as_json, everything=everything, output=output)
    end_if(cancelled)


def hand_out_reinforcement(
    result: ReinforcementPlan | NoReinforcementPlan, *, as_json: bool, everything: bool, output: Path | None
) -> None:
    """Print and write a result; ends with code 3 where it is not a plan."""
    view = partial(_view, result, everything=everything) if isinstance(result, ReinforcementPlan) else None
    hand_out_answer(reinforcement_document(result), view, as_json=as_json, output=output)
    if isinstance(result, NoReinforcementPlan):
        end_without_plan("no plan fits", refusal(result))


def _view(plan: ReinforcementPlan, *, everything: bool) -> RenderableType:
    parts: list[RenderableType] = [
        Text(headline(plan), style="bold"),
        table(PART_COLUMNS, part_rows(plan)),
        section("Where a step goes", table(STEP_COLUMNS, step_rows(plan))),
        section("How good is it?", Text(proof(plan))),
    ]
    if everything:
        parts.append(section("Ways to share the nodes out", table(SPLIT_COLUMNS, map(split_cells, plan.splits))))
        for name, nodes in (("Trainer", plan.training_nodes), ("Engine", plan.rollout_nodes)):
            parts.append(section(f"{name}'s nodes", Text(", ".join(nodes))))
    else:
        parts.append(Text("\n--verbose adds the other splits and the nodes of both parts.", style="dim"))
    return Group(*parts)
