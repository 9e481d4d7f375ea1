"""``meshwright plan``, ``predict`` and ``export``: plans made from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from app.cli.common_options import (
    Calibration,
    Cluster,
    Effort,
    FrameworkFile,
    GpuPrice,
    KeepOrder,
    LaunchOptions,
    Model,
    PlanFile,
    Routing,
    RoutingWeight,
    Seed,
    SolverName,
    TimeLimit,
    Tokens,
    Workload,
)
from app.cli.endings import reported
from app.cli.planning.serving_options import (
    Also,
    Arrivals,
    Exports,
    MaxGpus,
    Objective,
    Pin,
    Redundant,
    ServingOptions,
)

Json = Annotated[bool, typer.Option("--json", help="Print the plan as JSON and nothing else.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print hosts, memory by part and drift of links as well.")]


@reported
def plan(  # noqa: PLR0913, PLR0917 - one argument for each option
    cluster: Cluster,
    model: Model,
    workload: Workload,
    framework_file: FrameworkFile = None,
    calibration: Calibration = None,
    routing: Routing = None,
    routing_weight: RoutingWeight = None,
    keep_expert_order: KeepOrder = False,
    as_json: Json = False,
    time_limit: TimeLimit = None,
    effort: Effort = None,
    seed: Seed = None,
    gap: Annotated[
        float | None, typer.Option("--gap", metavar="FRACTION", help="Good enough: 0.01 = 1 % from optimal.")
    ] = None,
    backend: SolverName = None,
    robust: Annotated[
        bool, typer.Option("--robust", help="Take the plan that loses least when predictions are off.")
    ] = False,
    fastest: Annotated[
        bool, typer.Option("--fastest", help="Take the fastest plan, however little predictions can tell.")
    ] = False,
    tokens: Tokens = None,
    gpu_price: GpuPrice = None,
    objective: Objective = None,
    max_gpus: MaxGpus = None,
    pin: Pin = None,
    also: Also = None,
    exports: Exports = None,
    trace: Arrivals = None,
    redundant: Redundant = None,
    verbose: Verbose = False,
    output: PlanFile = None,
) -> None:
    """Search the best plan for a model and a workload on a measured cluster.

    Workloads are of training, or say kind: serving or kind: reinforcement.
    """
    from app.cli.planning import planning  # noqa: PLC0415 - ``--help`` is quick
    from app.cli.planning.routed import Routed  # noqa: PLC0415 - see above
    from app.cli.planning.workload_kinds import kind_of, refuse_training_options  # noqa: PLC0415 - see above

    options = planning.options_of(time_limit=time_limit, effort=effort, seed=seed, gap=gap, backend=backend)
    serving = ServingOptions(
        objective, max_gpus, tuple(pin or ()), tuple(also or ()), exports, calibration, trace, redundant=redundant
    )
    training = {
        "--framework-file": framework_file,
        "--routing-weight": routing_weight,
        "--keep-expert-order": keep_expert_order,
        "--robust": robust,
        "--fastest": fastest,
        "--tokens": tokens,
        "--gpu-price": gpu_price,
    }
    if (kind := kind_of(workload)) == "reinforcement":
        from app.cli.planning import reinforcement  # noqa: PLC0415 - see above

        refuse_training_options({**training, "--routing": routing}, "reinforcement learning")
        replace(serving, calibration=None).refuse_any()
        reinforcement.run_reinforcement_plan(
            cluster,
            model,
            workload,
            calibration=calibration,
            options=options,
            as_json=as_json,
            output=output,
            everything=verbose,
        )
        return
    if kind == "serving":
        serving = replace(serving, routing=tuple(routing or ()))
        from app.cli.planning import serving_planning  # noqa: PLC0415 - see above

        refuse_training_options(training)
        serving_planning.run_serving_plan(
            cluster,
            model,
            workload,
            serving=serving,
            options=options,
            as_json=as_json,
            output=output,
            everything=verbose,
        )
        return
    serving.refuse_any()
    routed = Routed(tuple(routing or ()), tuple(routing_weight or ()), keep_expert_order)
    choice = planning.choice_of(robust=robust, fastest=fastest)
    files = planning.ProblemFiles(cluster, model, workload, framework_file, calibration, routed, choice)
    budget = planning.budget_of(tokens, gpu_price)
    planning.run_plan(files, options=options, as_json=as_json, output=output, everything=verbose, budget=budget)


@reported
def predict(  # noqa: PLR0913 - one argument for each option
    *,
    cluster: Cluster,
    model: Model,
    workload: Workload,
    configuration: Annotated[
        str, typer.Option("--configuration", metavar="FILE", help="Configuration file, given in full.")
    ],
    framework_file: FrameworkFile = None,
    calibration: Calibration = None,
    routing: Routing = None,
    routing_weight: RoutingWeight = None,
    keep_expert_order: KeepOrder = False,
    trace: Arrivals = None,
    redundant: Redundant = None,
    as_json: Json = False,
    verbose: Verbose = False,
    output: PlanFile = None,
) -> None:
    """Predict time and memory of a configuration given in full, of training or of serving, without a search."""
    from app.cli.planning.serving_predicting import predicted_as_serving  # noqa: PLC0415 - see above

    training = {
        "--framework-file": framework_file,
        "--routing-weight": routing_weight,
        "--keep-expert-order": keep_expert_order,
    }
    files = (cluster, model, workload, configuration)
    serving = ServingOptions(calibration=calibration, trace=trace, redundant=redundant)
    with_counts = replace(serving, routing=tuple(routing or ()))
    if predicted_as_serving(*files, with_counts, training=training, as_json=as_json, output=output):
        return
    serving.refuse_any()
    from app.cli.planning.planning import ProblemFiles  # noqa: PLC0415 - see above
    from app.cli.planning.predicting import run_predict  # noqa: PLC0415 - see above
    from app.cli.planning.routed import Routed  # noqa: PLC0415 - see above

    routed = Routed(tuple(routing or ()), tuple(routing_weight or ()), keep_expert_order)
    problem = ProblemFiles(cluster, model, workload, framework_file, calibration, routed)
    run_predict(problem, configuration=configuration, as_json=as_json, output=output, everything=verbose)


@reported
def export(
    plan_json: Annotated[str, typer.Argument(metavar="PLAN_JSON", help="Plan as JSON; - reads a pipe.")],
    target: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="megatron, torchrun, slurm, hostfile, json and others; a wrong one lists them all.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write to a file instead of printing; a folder for a format of several files.",
        ),
    ] = None,
    given: LaunchOptions = None,
) -> None:
    """Write a plan for a launcher, a trace viewer or a spreadsheet."""
    from app.cli.planning.exporting import run_export  # noqa: PLC0415 - see above

    run_export(plan_json=plan_json, target=target, given=given or (), output=output)


def add_commands(program: typer.Typer) -> None:
    """Put the commands into the program."""
    for command in (plan, predict, export):
        program.command()(command)
