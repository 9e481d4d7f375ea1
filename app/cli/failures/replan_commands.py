"""``meshwright replan`` and ``resilience``: options of what is decided and judged without a database."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.common_options import DecisionFolder, Effort, EventFile, Json, LaunchFormats, LaunchOptions, Seed
from app.cli.endings import reported

Lost = Annotated[
    list[str] | None,
    typer.Option("--lost", metavar="PART", help="What failed: n3, n7:gpu2, n7:nic0, n1-n5 (a link), leaf:a."),
]
Degraded = Annotated[
    list[str] | None,
    typer.Option(
        "--degraded",
        metavar="PART=SHARE",
        help="What is left of a link's bandwidth, or of a node's pace: n1-n5=0.5, n3=0.8.",
    ),
]
Draining = Annotated[
    list[str] | None, typer.Option("--draining", metavar="PART", help="What works and must be left soon.")
]
AdapterName = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        metavar="NAME",
        help="Format of --events: plain, alertmanager, kubernetes, slurm, dcgm, aws_health, nvsentinel.",
    ),
]


@reported
def replan(  # noqa: PLR0913 - one argument for each option
    *,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER_FILE", help="Cluster file.")],
    jobs: Annotated[
        list[str] | None, typer.Option("--job", metavar="NAME=PLAN_JSON", help="A job and the plan it runs by.")
    ] = None,
    weights: Annotated[
        list[str] | None, typer.Option("--weight", metavar="NAME=NUMBER", help="Worth of a job's work; default 1.")
    ] = None,
    recoveries: Annotated[
        list[str] | None,
        typer.Option("--recovery", metavar="[NAME=]FILE", help="Checkpoints, restart times, what a job may do."),
    ] = None,
    calibrations: Annotated[
        list[str] | None,
        typer.Option("--calibration", metavar="FILE", help="Own calibration that a job was planned with."),
    ] = None,
    spares: Annotated[
        list[str] | None,
        typer.Option("--spare", metavar="NODE", help="A node that jobs may take, or all; default: the plans' own."),
    ] = None,
    lost: Lost = None,
    degraded: Degraded = None,
    draining: Draining = None,
    events: EventFile = None,
    adapter: AdapterName = None,
    horizon: Annotated[
        str | None, typer.Option("--horizon", metavar="TIME", help="Weigh work against moves over: 6h, 90m, 2d.")
    ] = None,
    back_after: Annotated[
        str | None, typer.Option("--back-after", metavar="TIME", help="Lost nodes are expected back; default 6h.")
    ] = None,
    gpu_budget: Annotated[
        int | None, typer.Option("--gpu-budget", min=1, help="Most GPUs of all jobs together.")
    ] = None,
    spare_worth: Annotated[
        float | None,
        typer.Option(
            "--spare-worth", min=0, max=1, metavar="SHARE", help="Worth of a spare GPU kept, of a GPU's work; 0.01."
        ),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="SECONDS", help="Decide within so long; default 15.")
    ] = None,
    effort: Effort = None,
    seed: Seed = None,
    safe: Annotated[bool, typer.Option("--safe", help="Only the safe answer, in about a second.")] = False,
    as_json: Json = False,
    output: DecisionFolder = None,
    formats: LaunchFormats = None,
    given: LaunchOptions = None,
) -> None:
    """Decide what running jobs do after failures: which take spares, shrink, wait or pause."""
    # Imported here, as everywhere: --help is to be quick.
    from app.cli.failures.failure_options import ToldFailures  # noqa: PLC0415
    from app.cli.failures.replan import AskedReplan, run_replan  # noqa: PLC0415
    from app.cli.failures.replan_files import DecisionFiles  # noqa: PLC0415
    from app.cli.failures.replan_options import TypedJobs  # noqa: PLC0415

    run_replan(
        AskedReplan(
            cluster=cluster,
            jobs=TypedJobs(jobs or (), weights or (), recoveries or ()),
            told=ToldFailures(lost or (), degraded or (), draining or (), events=events, adapter=adapter),
            calibrations=calibrations or (),
            spares=spares or (),
            horizon=horizon,
            back_after=back_after,
            gpu_budget=gpu_budget,
            spare_worth=spare_worth,
            time_limit=time_limit,
            effort=effort,
            seed=seed,
            safe=safe,
            as_json=as_json,
            files=DecisionFiles(output, tuple(formats or ()), tuple(given or ())),
        )
    )


@reported
def resilience(  # noqa: PLR0913 - one argument for each option
    *,
    plan: Annotated[str, typer.Argument(metavar="PLAN_JSON", help="Plan as JSON; - reads a pipe.")],
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="FILE", help="Its cluster file: places, and prices of links.")
    ] = None,
    recovery: Annotated[
        str | None, typer.Option("--recovery", metavar="FILE", help="How the job keeps its state.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="NUMBER", help="Failures of 1,000 nodes a day; default 6.5 (Meta's RSC-1)."),
    ] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option("--checkpoint-every", metavar="TIME", help="30m, 2h or 100steps.")
    ] = None,
    checkpoint_write: Annotated[
        str | None,
        typer.Option("--checkpoint-write", metavar="TIME", help="What one holds up the job; 0s if nothing."),
    ] = None,
    restart: Annotated[
        str | None, typer.Option("--restart", metavar="TIME", help="From a failure to the first step.")
    ] = None,
    label: Annotated[
        str, typer.Option("--label", metavar="LABEL", help="Survive one more of these: node, leaf, rack ...")
    ] = "node",
    search: Annotated[
        str | None,
        typer.Option("--search", metavar="TIME", help="Look so long for another plan that survives one more."),
    ] = None,
    calibration: Annotated[
        str | None, typer.Option("--calibration", metavar="FILE", help="Own calibration of the plan, for --search.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say which losses a plan survives, what failures cost it, and the cheapest way to survive more."""
    from app.cli.failures.resilience import AskedResilience, run_resilience  # noqa: PLC0415

    run_resilience(
        AskedResilience(
            plan=plan,
            cluster=cluster,
            recovery=recovery,
            rate=rate,
            checkpoint_every=checkpoint_every,
            write=checkpoint_write,
            restart=restart,
            label=label,
            search=search,
            calibration=calibration,
            as_json=as_json,
        )
    )
