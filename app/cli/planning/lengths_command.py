"""``meshwright lengths`` and its options."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.common_options import Json
from app.cli.endings import reported
from cluster_models.training.mixed_lengths import Balance, Packing


@reported
def lengths(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="Tokens of one document a line, or tokens,count; - for standard input."
        ),
    ],
    packing: Annotated[Packing, typer.Option("--packing", help="How they fill a sequence.")] = Packing.WHOLE,
    balance: Annotated[Balance, typer.Option("--balance", help="Which data rank gets which.")] = Balance.DRAWN,
    as_json: Json = False,
) -> None:
    """Print what a workload says of documents of mixed lengths, from a list or histogram."""
    from app.cli.planning.lengths import run_lengths  # noqa: PLC0415 - ``--help`` is quick

    run_lengths(file, packing=packing, balance=balance, as_json=as_json)


def add_commands(program: typer.Typer) -> None:
    """Put the command into the program."""
    program.command()(lengths)
