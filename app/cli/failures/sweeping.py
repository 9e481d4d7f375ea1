"""``meshwright replans sweep``: by the workers of a service, or in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from rich.text import Text

from app.answers.sweeps import SweepAnswer, SweepSummary
from app.cli.clusters.stored import databases
from app.cli.connection import service
from app.cli.files import naming, read_text
from app.cli.progress import shown_progress
from app.cli.server import chosen_server
from app.cli.terminal import console, error_console, print_text, table
from app.client import every
from app.db.engine import transaction
from app.documents.reading import parse_text
from app.presentation.sweeps import IMPACT_COLUMNS, impact_cells
from app.services.decisions import sweep_answers, sweeps
from app.services.decisions.sweeps import SweepStatus
from app.services.pagination import MAX_LIMIT

_LOOK_EVERY_S: Final = 1.0


def run_sweep(
    cluster: str, *, each: str | None, failures: str | None, worst: int, as_json: bool, database_url: str | None
) -> None:
    """Ask, wait and print the ranked answers; Ctrl-C calls off the rest."""
    with service(database_url) as asked:
        made = asked.create_sweep(cluster, _body(each, failures))
        try:
            with shown_progress(error_console(), _line) as show:
                if chosen_server().address is None:
                    _answer_here(made, database_url, show)
                while (now := asked.get_sweep(made.id, worst=1)).status is SweepStatus.RUNNING:
                    show(now)
                    time.sleep(_LOOK_EVERY_S)
        except KeyboardInterrupt:
            asked.cancel_sweep(made.id)
            raise
        found = asked.get_sweep(made.id, worst=min(worst, MAX_LIMIT))
        if worst > MAX_LIMIT:
            pages = every(asked.list_sweep_answers, made.id, limit=MAX_LIMIT)
            found = found.model_copy(update={"worst": list(islice(pages, worst))})
    if as_json:
        print_text(found.model_dump_json(indent=2))
    else:
        _print(found)


def _body(each: str | None, failures: str | None) -> dict[str, Any]:
    if failures is None:
        return {"each": each or "node"}
    with naming(failures):
        listed = parse_text(read_text(failures), what=failures)
    return {"failures": listed} if each is None else {"each": each, "failures": listed}


def _answer_here(made: SweepSummary, database_url: str | None, show: Callable[[SweepSummary], None]) -> None:
    """Answer all of it in this process; a service on the same database may answer some of it meanwhile."""

    def transact(do: Any) -> Any:
        with transaction(sessions) as session:
            return do(session)

    with databases(database_url) as sessions:
        for number in range(made.failures):
            sweep_answers.work_out(transact, sweep_id=made.id, number=number)
            with sessions() as session:
                show(SweepSummary.from_value(sweeps.get_sweep(session, sweep_id=made.id)))


def _line(sweep: SweepSummary) -> Text:
    return Text(sweep.explanation)


def _print(found: SweepAnswer) -> None:
    rows = []
    for impact in found.worst:
        losses = impact.lost_tokens_per_s, impact.lost_requests_per_s, impact.lost_gpu_hours
        names = impact.must_move, impact.not_covered, impact.spares_used
        rows.append(impact_cells(impact.name, losses, names, impact.error))
    console().print(table(IMPACT_COLUMNS, rows))
    console().print(found.explanation)
