"""Options that commands of several kinds take, spelled and explained once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Cluster = Annotated[str, typer.Option("--cluster", metavar="FILE", help="Cluster file.")]
Model = Annotated[
    str, typer.Option("--model", metavar="FILE_OR_NAME", help="Model file, config.json, or catalogue name.")
]
Workload = Annotated[str, typer.Option("--workload", metavar="FILE", help="Workload file.")]
Calibration = Annotated[
    str | None, typer.Option("--calibration", metavar="FILE", help="Own calibration; see calibrate.")
]
FrameworkFile = Annotated[
    str | None,
    typer.Option("--framework-file", metavar="FILE", help="What your framework does; see frameworks show."),
]
ClusterName = Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of a stored cluster.")]
DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database-url", metavar="URL", help="Database; default: MESHWRIGHT_DATABASE_URL or our own."),
]
Json = Annotated[bool, typer.Option("--json", help="Print all as JSON and nothing else.")]
DecisionFolder = Annotated[
    Path | None, typer.Option("--output", metavar="DIR", help="Write new plans and launch files into a folder.")
]
LaunchFormats = Annotated[
    list[str] | None,
    typer.Option("--format", metavar="FORMAT", help="Launch files of --output, as of export; default slurm."),
]
LaunchOptions = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Option of a format: image, queue ...")
]
Tokens = Annotated[
    str | None, typer.Option("--tokens", metavar="NUMBER", help="Tokens of the whole run, as 15T: adds its days.")
]
GpuPrice = Annotated[
    float | None,
    typer.Option("--gpu-price", metavar="USD", help="Price of a GPU-hour in US dollars; default: list prices."),
]
Routing = Annotated[
    list[Path] | None,
    typer.Option(
        "--routing", metavar="FILE", help="Routing statistics: experts are placed for them; see experts show."
    ),
]
RoutingWeight = Annotated[
    list[str] | None,
    typer.Option(
        "--routing-weight", metavar="NAME=WEIGHT", help="Weight of a workload; those not named are judged only."
    ),
]
KeepOrder = Annotated[
    bool, typer.Option("--keep-expert-order", help="Leave experts in contiguous blocks.", show_default=False)
]
PlanFile = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Also write the plan as JSON to a file.")
]
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", metavar="SECONDS", help="Stop searching after so long.")
]
Effort = Annotated[int | None, typer.Option("--effort", min=1, max=100, help="Scale of every work budget.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, max=2**31 - 1, help="Seed of the search.")]
SolverName = Annotated[
    str | None, typer.Option("--backend", metavar="cbc|highs", help="Integer programming solver.")
]
Most = Annotated[int, typer.Option("--most", min=1, help="At most so many.")]
Store = Annotated[bool, typer.Option("--store", help="Keep it in the service's database.")]
EventFile = Annotated[
    str | None, typer.Option("--events", metavar="FILE", help="Reports of a monitoring system; - reads a pipe.")
]
