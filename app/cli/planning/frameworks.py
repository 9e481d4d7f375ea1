"""``meshwright frameworks``: list the shipped generations, and print one to start from."""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic import TypeAdapter
from rich.table import Table

from app.cli.files import check_writable, write_text
from app.cli.terminal import console
from app.documents.framework import FrameworkAnswer, FrameworkDescription, starting_text
from app.documents.reading import close_name
from cluster_models.errors import InvalidInput
from cluster_models.training.frameworks import frameworks


def run_list(*, as_json: bool) -> None:
    """Print the shipped generations, oldest first."""
    known = frameworks().values()
    if as_json:
        answers = [FrameworkAnswer.from_framework(each) for each in known]
        sys.stdout.write(TypeAdapter(list[FrameworkAnswer]).dump_json(answers, indent=2).decode() + "\n")
        return
    table = Table(box=None, pad_edge=False)
    for head in ("name", "current from", "framework"):
        table.add_column(head, overflow="fold")
    for each in known:
        table.add_row(each.name, each.released, each.title)
    console().print(table)


def run_show(*, name: str, as_json: bool, output: Path | None) -> None:
    """Print or write the description of a shipped generation, or raise ``InvalidInput``."""
    check_writable(output)
    known = frameworks()
    if name not in known:
        raise InvalidInput("NAME", name, "is not a shipped generation", close_name(name, list(known)))
    text = starting_text(known[name])
    if as_json:
        text = FrameworkDescription.starting_from(known[name]).model_dump_json(indent=2) + "\n"
    if output is None:
        sys.stdout.write(text)
    else:
        write_text(output, text)
