"""The commands and their options; what a command does is imported when it runs, so that ``--help`` is quick."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from app.cli.calibration.calibration_commands import experiments, profiler
from app.cli.common_options import (
    Calibration,
    Cluster,
    DatabaseUrl,
    Effort,
    FrameworkFile,
    GpuPrice,
    KeepOrder,
    Model,
    PlanFile,
    Routing,
    RoutingWeight,
    Seed,
    SolverName,
    Store,
    TimeLimit,
    Tokens,
    Workload,
)
from app.cli.endings import reported
from app.cli.failures import failure_commands
from app.cli.groups import add_groups
from app.cli.planning import comparison_commands, lengths_command
from app.cli.planning.serving_options import Also, Arrivals, Exports, MaxGpus, Objective, Pin, ServingOptions
from app.cli.server import Background, Server, ServerAddress, ServerKey, choose_server
from app.cli.service import access_commands, service_commands

app = typer.Typer(
    name="meshwright",
    help="Plans how a large language model is spread over a GPU cluster as it was measured, with a proof.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
add_groups(app)

Json = Annotated[bool, typer.Option("--json", help="Print the plan as JSON and nothing else.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print hosts, memory by part and drift of links as well.")]
Given = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Option of the format: image, queue, namespace, command ..."),
]


@app.command()
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
    verbose: Verbose = False,
    output: PlanFile = None,
) -> None:
    """Search the best plan for a model and a workload, of training or of serving, on a measured cluster."""
    from app.cli.planning import planning  # noqa: PLC0415 - see above
    from app.cli.planning.routed import Routed  # noqa: PLC0415 - see above
    from app.cli.planning.serving_predicting import is_serving, refuse_training_options  # noqa: PLC0415 - see above

    options = planning.options_of(time_limit=time_limit, effort=effort, seed=seed, gap=gap, backend=backend)
    serving = ServingOptions(objective, max_gpus, tuple(pin or ()), tuple(also or ()), exports, calibration, trace)
    if is_serving(workload):
        from app.cli.planning import serving_planning  # noqa: PLC0415 - see above

        training = {
            "--framework-file": framework_file,
            "--routing": routing,
            "--robust": robust,
            "--fastest": fastest,
            "--tokens": tokens,
            "--gpu-price": gpu_price,
        }
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


@app.command()
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
    as_json: Json = False,
    verbose: Verbose = False,
    output: PlanFile = None,
) -> None:
    """Predict time and memory of a configuration given in full, of training or of serving, without a search."""
    from app.cli.planning.serving_predicting import predicted_as_serving  # noqa: PLC0415 - see above

    training = {"--framework-file": framework_file, "--routing": routing}
    files = (cluster, model, workload, configuration)
    serving = ServingOptions(calibration=calibration, trace=trace)
    if predicted_as_serving(*files, serving, training=training, as_json=as_json, output=output):
        return
    serving.refuse_any()
    from app.cli.planning.planning import ProblemFiles  # noqa: PLC0415 - see above
    from app.cli.planning.predicting import run_predict  # noqa: PLC0415 - see above
    from app.cli.planning.routed import Routed  # noqa: PLC0415 - see above

    routed = Routed(tuple(routing or ()), tuple(routing_weight or ()), keep_expert_order)
    problem = ProblemFiles(cluster, model, workload, framework_file, calibration, routed)
    run_predict(problem, configuration=configuration, as_json=as_json, output=output, everything=verbose)


@app.command()
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
    given: Given = None,
) -> None:
    """Write a plan for a launcher, a trace viewer or a spreadsheet."""
    from app.cli.planning.exporting import run_export  # noqa: PLC0415 - see above

    run_export(plan_json=plan_json, target=target, given=given or (), output=output)


@app.command("import")
@reported
def import_files(  # noqa: PLR0913 - one argument for each option
    *,
    files: Annotated[
        list[str], typer.Argument(metavar="FILES...", help="Files and folders; - reads standard input.")
    ],
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="What to call the cluster.")
    ] = None,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="FILE_OR_NAME", help="Add to this cluster file, or to a stored cluster."),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="FILE=NODE",
            help="The node that a file is from, * = one of many alike; of a folder for each node: */FILE={folder}.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Answer a question of the report, by its key."),
    ] = None,
    accepted: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="KEY", help="Use figures in spite of a doubt: FILE:LINE:CODE, or a CODE."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the cluster file that plan takes.")
    ] = None,
    store: Store = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole report as JSON and nothing else.")
    ] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Read what other tools printed, and say what was understood; nothing is kept unless asked for."""
    from app.cli.clusters.import_next import Asked  # noqa: PLC0415 - see above
    from app.cli.clusters.importing import run_import  # noqa: PLC0415 - see above

    options = (("--host", hosts or ()), ("--set", settings or ()), ("--accept", accepted or ()))
    asked = Asked(
        files=tuple(files),
        cluster=cluster,
        into=into,
        output=output,
        store=store,
        answers=tuple(word for option, values in options for value in values for word in (option, value)),
        database_url=database_url,
    )
    run_import(asked, hosts=hosts or (), settings=settings or (), accepted=accepted or (), as_json=as_json)


@app.command("import-formats")
@reported
def import_formats(
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON and nothing else.")] = False,
) -> None:
    """List the kinds of file that import knows."""
    from app.cli.clusters.importing import run_import_formats  # noqa: PLC0415 - see above

    run_import_formats(as_json=as_json)


@app.command()
@reported
def measure(  # noqa: PLR0913 - one argument for each option
    *,
    cluster: Annotated[str, typer.Argument(metavar="FILE_OR_NAME", help="Cluster file, or a stored one.")],
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan", metavar="FILE_OR_ID", help="Measure what this plan, a file or a stored one, rests on."
        ),
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option("--for", metavar="slurm|mpi|kubernetes", help="Print the script that measures, or write it."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Write the scripts into a folder.")
    ] = None,
    most_pairs: Annotated[int, typer.Option("--most-pairs", min=1, help="At most so many pairs.")] = 200,
    most_minutes: Annotated[
        float, typer.Option("--most-minutes", metavar="MINUTES", help="At most about so long.")
    ] = 240.0,
    given: Given = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all as JSON and nothing else.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Choose the pairs of nodes to measure next, and write nccl-tests scripts that measure them."""
    from app.cli.clusters.measuring import run_measure  # noqa: PLC0415 - see above

    run_measure(
        cluster=cluster,
        plan=plan,
        launcher=launcher,
        given=given or (),
        limits=(most_pairs, most_minutes),
        as_json=as_json,
        output=output,
        database_url=database_url,
    )


for commands in (access_commands, comparison_commands, failure_commands, lengths_command, service_commands):
    commands.add_commands(app)


@app.command()
@reported
def calibrate(  # noqa: PLR0913 - one argument for each option
    *,
    runs: Annotated[
        str | None, typer.Option("--runs", metavar="CSV", help="Measured steps, one run a line.")
    ] = None,
    serving: Annotated[
        str | None, typer.Option("--serving", metavar="CSV", help="Measured points of serving, one a line.")
    ] = None,
    framework_files: Annotated[
        list[str] | None,
        typer.Option("--framework-file", metavar="FILE", help="What a framework of the runs does; repeatable."),
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="JSON", help="What the profiler script wrote.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="KIND", help="GPU kind of the profile, if its name is unknown.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Its name; default: the output file's, or own.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the calibration as JSON.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the calibration as JSON and nothing else.")
    ] = False,
    store: Store = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Fit the cost model to own runs, a profile of the own GPU, or points of serving."""
    from app.cli.calibration.calibrating import MeasuredFiles, run_calibrate  # noqa: PLC0415 - see above

    run_calibrate(
        MeasuredFiles(runs, framework_files or (), profile, gpu, serving),
        name=name,
        output=output,
        as_json=as_json,
        store=store,
        database_url=database_url,
    )


for measuring in (experiments, profiler):
    app.command()(measuring)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"meshwright {version('meshwright')}")
        raise typer.Exit


@app.callback()
@reported
def _options(
    context: typer.Context,
    *,
    server: ServerAddress = None,
    key: ServerKey = None,
    background: Background = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Plans how a large language model is spread over a GPU cluster as it was measured, with a proof."""
    source = context.get_parameter_source("server")
    is_typed = source is not None and source.name == "COMMANDLINE"
    choose_server(Server(server, key, background), command=context.invoked_subcommand, is_typed=is_typed)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    try:
        app(arguments)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1
    return 0
