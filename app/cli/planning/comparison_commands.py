"""``meshwright compare`` and ``sensitivity``: the plan beside other configurations, and beside other hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.common_options import Calibration, Cluster, FrameworkFile, GpuPrice, Json, Model, Tokens, Workload
from app.cli.endings import reported


@reported
def compare(  # noqa: PLR0913, PLR0917 - one argument for each option
    others: Annotated[
        list[str],
        typer.Argument(
            metavar="OTHERS...",
            help="Launch scripts of Megatron-LM or NeMo, configuration files, plans as JSON, or degrees such "
            "as 'tp8 pp4 dp2 mb1 recompute=full'.",
        ),
    ],
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan", metavar="PLAN_JSON", help="Compare with this plan; without it, one is searched for."
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="FILE", help="Cluster file, to price configurations on.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="FILE_OR_NAME", help="Model, as for plan; default: that of the plan."),
    ] = None,
    workload: Annotated[
        str | None, typer.Option("--workload", metavar="FILE", help="Workload file; default: that of the plan.")
    ] = None,
    framework_file: FrameworkFile = None,
    calibration: Calibration = None,
    routing: Annotated[
        list[Path] | None, typer.Option("--routing", metavar="FILE", help="Routing statistics, as for plan.")
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option("--gpus", min=1, help="GPUs of launch arguments that do not say; default: as the plan."),
    ] = None,
    tokens: Tokens = None,
    gpu_price: GpuPrice = None,
    as_json: Json = False,
) -> None:
    """Compare your own configuration, or other plans, with the plan: step by parts, memory, days and dollars."""
    from app.cli.planning.comparing import ComparedFiles, run_compare  # noqa: PLC0415 - what a command does loads when it runs
    from app.cli.planning.planning import budget_of  # noqa: PLC0415 - see above
    from app.cli.planning.routed import Routed  # noqa: PLC0415 - see above

    files = ComparedFiles(plan, cluster, model, workload, framework_file, calibration, Routed(tuple(routing or ())))
    run_compare(others, files=files, gpus=gpus, budget=budget_of(tokens, gpu_price), as_json=as_json)


@reported
def sensitivity(
    *,
    cluster: Cluster,
    model: Model,
    workload: Workload,
    framework_file: FrameworkFile = None,
    calibration: Calibration = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="SECONDS", help="For all searches together; default 60.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the fastest plan for fewer GPUs, and what a node more, faster links, more memory or a switch brings."""
    from app.cli.planning.planning import ProblemFiles, options_of  # noqa: PLC0415 - see above
    from app.cli.planning.routed import Routed  # noqa: PLC0415 - see above
    from app.cli.planning.sensitivity import run_sensitivity  # noqa: PLC0415 - see above

    files = ProblemFiles(cluster, model, workload, framework_file, calibration, Routed())
    options = options_of(time_limit=time_limit, effort=None, seed=None, gap=None, backend=None)
    run_sensitivity(files, options=options, as_json=as_json)


def add_commands(app: typer.Typer) -> None:
    """Add both to the commands of ``meshwright``."""
    app.command()(compare)
    app.command()(sensitivity)
