"""Options of ``meshwright plan`` for workloads of serving."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from cluster_models.errors import InvalidInput

Objective = Annotated[
    str | None,
    typer.Option(
        "--objective", metavar="NAME", help="Serving: throughput, goodput, gpus, cost or power, over the file's."
    ),
]
MaxGpus = Annotated[
    int | None, typer.Option("--max-gpus", min=1, metavar="NUMBER", help="Serving: GPUs to use at most.")
]
Pin = Annotated[
    list[str] | None,
    typer.Option("--pin", metavar="NAME=VALUE", help="Serving: a degree of all workers, as tensor=4."),
]
Also = Annotated[
    list[str] | None,
    typer.Option("--also", metavar="MODEL=FILE", help="Serving: one more model with its workload file."),
]
Arrivals = Annotated[
    str | None,
    typer.Option(
        "--trace", metavar="FILE", help="Serving: arrivals, CSV or JSON lines, in place of lengths and load."
    ),
]
Exports = Annotated[
    Path | None,
    typer.Option("--exports", metavar="DIR", help="Serving: also write every export that can take the plan."),
]


Redundant = Annotated[
    int | None,
    typer.Option(
        "--redundant", min=0, metavar="NUMBER", help="Serving, with --routing: expert slots of a layer for copies."
    ),
]


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Options of the command line for serving, over the goal in the workload file.

    ``pins`` are "name=value"; ``also`` are further models, each "model=workload file";
    ``calibration`` is a file, or a stored name where a service plans; ``trace`` a file of arrivals;
    ``routing`` are files of counts, for which experts are placed with ``redundant`` slots.
    """

    objective: str | None = None
    max_gpus: int | None = None
    pins: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    exports: Path | None = None
    calibration: str | None = None
    trace: str | None = None
    routing: tuple[Path, ...] = ()
    redundant: int | None = None

    def refuse_any(self) -> None:
        """Raise ``InvalidInput`` for an option given: the workload is not of serving."""
        in_file = {"--objective": self.objective, "--max-gpus": self.max_gpus}
        others = {"--pin": self.pins, "--also": self.also, "--exports": self.exports, "--trace": self.trace}
        for name, value in (*in_file.items(), *others.items(), ("--redundant", self.redundant)):
            if value:
                shown = ", ".join(value) if isinstance(value, tuple) else str(value)
                remedy = "leave it out" + ("; workload files of training have it" if name in in_file else "")
                raise InvalidInput(name, shown, "belongs to workloads of serving", remedy)
