"""``meshwright plans`` on a service, elsewhere or in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from app.answers.plans import PlanSummary
from app.cli.connection import service
from app.cli.endings import complain
from app.cli.files import check_writable
from app.cli.planning.fleet import hand_out_fleet
from app.cli.planning.planning import deliver
from app.cli.planning.reinforcement import hand_out_reinforcement
from app.cli.planning.serving_planning import hand_out
from app.cli.terminal import console, print_text
from app.client import every
from app.db.status import PlanStatus
from app.documents.fleet import FleetPlanDocument, NoFleetPlanDocument
from app.documents.plan import NoPlanDocument, PlanDocument
from app.documents.reading import close_name
from app.documents.reinforcement_plan import NoReinforcementPlanDocument, ReinforcementPlanDocument
from app.presentation.figures import seconds
from app.presentation.recovery import moment
from cluster_models.errors import InvalidInput


def run_list(
    *, cluster: str | None, status: str | None, most: int, as_json: bool, database_url: str | None
) -> None:
    """Print plans, the newest first."""
    if status is not None and status not in tuple(PlanStatus):
        raise InvalidInput("--status", status, "is not a status", close_name(status, list(PlanStatus)))
    chosen = None if status is None else PlanStatus(status)
    with service(database_url) as asked:
        found = list(islice(every(asked.list_plans, cluster=cluster, status=chosen), most))
    if as_json:
        print_text(json.dumps([each.model_dump(mode="json") for each in found], indent=2))
    elif not found:
        console().print("No plans.")
    else:
        console().print(_plans(found))


def run_show(plan: str, *, as_json: bool, everything: bool, output: Path | None, database_url: str | None) -> None:
    """Print a plan as ``meshwright plan`` does; where there is no result, what became of it."""
    check_writable(output)
    with service(database_url) as asked:
        found = asked.get_plan(plan)
    if found.result is None:
        if as_json:
            print_text(found.model_dump_json(indent=2))
            return
        console().print(f"{found.id} for {found.model} on {found.cluster}: {found.status}")
        if found.error is not None:
            complain(f"meshwright: {found.error.problem} {found.error.remedy}")
        return
    if isinstance(found.result, PlanDocument | NoPlanDocument):
        deliver(found.result.to_value(), as_json=as_json, output=output, everything=everything)
    elif isinstance(found.result, FleetPlanDocument | NoFleetPlanDocument):
        hand_out_fleet(found.result.to_value(), as_json=as_json, everything=everything, output=output)
    elif isinstance(found.result, ReinforcementPlanDocument | NoReinforcementPlanDocument):
        joint = found.result.to_value()
        hand_out_reinforcement(joint, as_json=as_json, everything=everything, output=output)
    else:
        hand_out(found.result.to_plan(), as_json=as_json, output=output, everything=everything)


def run_cancel(plan: str, *, database_url: str | None) -> None:
    """Call a plan off."""
    with service(database_url) as asked:
        found = asked.cancel_plan(plan)
    console().print(f"{found.id}: {found.status}")


def run_stop(plan: str, *, database_url: str | None) -> None:
    """Ask a search for the best plan so far."""
    with service(database_url) as asked:
        found = asked.stop_plan(plan)
    console().print(f"{found.id}: {'ends with the best plan so far' if found.is_stopping else found.status}")


def run_delete(plan: str, *, database_url: str | None) -> None:
    """Forget a plan."""
    with service(database_url) as asked:
        asked.delete_plan(plan)
    console().print(f"{plan}: forgotten")


def _plans(found: Sequence[PlanSummary]) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("id", "asked for", "status", "kind", "model", "cluster", "took"):
        table.add_column(name, overflow="fold")
    for each in found:
        took = ""
        if each.started_at is not None and each.finished_at is not None:
            took = seconds((each.finished_at - each.started_at).total_seconds())
        table.add_row(
            *map(Text, (each.id, moment(each.created_at), each.status, each.kind, each.model)), each.cluster, took
        )
    return table
