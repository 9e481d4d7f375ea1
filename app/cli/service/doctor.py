"""``meshwright doctor``: checks of an installation, and the remedy of each fault."""

from __future__ import annotations

import json
from typing import Final

import typer
from rich.table import Table
from rich.text import Text

from app.cli.endings import Ending
from app.cli.environment import read_settings
from app.cli.server import refuse_server
from app.cli.terminal import console, print_text
from app.diagnosis import Finding, Health, diagnose
from app.serialization import jsonable

_STYLES: Final = {Health.GOOD: "green", Health.DOUBTFUL: "yellow", Health.BROKEN: "red"}


def run_doctor(*, as_json: bool, database_url: str | None) -> None:
    """Print all findings; ends with 1 where something is broken."""
    refuse_server("doctor")
    settings = read_settings() if database_url is None else read_settings(database_url=database_url)
    findings = tuple(diagnose(settings))
    if as_json:
        print_text(json.dumps(jsonable(findings), indent=2))
    else:
        console().print(_table(findings))
    if any(each.health is Health.BROKEN for each in findings):
        raise typer.Exit(Ending.INTERNAL_ERROR)


def _table(findings: tuple[Finding, ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    for each in findings:
        said = each.detail + (f"; {each.remedy}" if each.remedy else "")
        table.add_row(Text(each.part), Text(each.health, style=_STYLES[each.health]), Text(said, overflow="fold"))
    return table
