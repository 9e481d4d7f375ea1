"""``meshwright plans portfolio``: several plans of a service as one answer."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from app.answers.plans import PlanEvent
from app.answers.portfolios import PortfolioAnswer, PortfolioSummary
from app.cli.connection import service
from app.cli.files import naming, read_text
from app.cli.progress import shown_progress
from app.cli.server import chosen_server
from app.cli.terminal import console, error_console, print_text, table
from app.client import Client
from app.documents.reading import parse_text
from app.presentation.portfolios import MEMBER_COLUMNS, member_cells
from cluster_models.errors import InvalidInput


def run_portfolio(request: str, *, as_json: bool) -> None:
    """Ask, wait and print what came out; Ctrl-C calls off the rest."""
    if chosen_server().address is None:
        raise InvalidInput("--server", None, "is missing", "the workers of a service solve a portfolio: name it")
    with naming(request):
        body: Any = parse_text(read_text(request), what=request)
    with service() as asked:
        made = asked.create_portfolio(body)
        try:
            _wait(asked, made)
        except KeyboardInterrupt:
            asked.cancel_portfolio(made.id)
            raise
        found = asked.get_portfolio(made.id)
    if as_json:
        print_text(found.model_dump_json(indent=2))
    else:
        _print(found)


def _wait(asked: Client, made: PortfolioSummary) -> None:
    with shown_progress(error_console(), Text) as show:
        for name, plan in made.plans.items():
            for event in asked.stream_plan(plan):
                show(f"{name}: {PlanEvent.model_validate_json(event.data, extra='ignore').status}")


def _print(found: PortfolioAnswer) -> None:
    rows = [
        member_cells(each.name, each.status, (each.gpus, each.step_s, each.tokens_per_s), each.best, each.proof.gap)
        for each in found.members
    ]
    console().print(table(MEMBER_COLUMNS, rows))
    console().print(found.explanation)
