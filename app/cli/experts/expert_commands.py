"""``meshwright experts``: its commands and options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.common_options import Json
from app.cli.endings import reported

app = typer.Typer(help="Place the experts of a model by how its router used them.", no_args_is_help=True)

Loads = Annotated[
    list[Path] | None,
    typer.Option("--loads", metavar="FILES...", help="Counts of expert selections: files, folders, archives."),
]
More = Annotated[list[Path] | None, typer.Argument(metavar="[FILES]...", show_default=False)]
Ranks = Annotated[int, typer.Option("--ranks", min=1, help="Expert ranks (GPUs).")]
Nodes = Annotated[int, typer.Option("--nodes", min=1, help="Nodes; ranks of a node are consecutive.")]
LinkSpeed = Annotated[
    float | None, typer.Option("--link-speed", metavar="GBIT_PER_S", help="Between nodes, for each GPU, one way.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="FILE_OR_NAME", help="The model that was recorded.")
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", metavar="FILE", help="Cluster file whose measured links count.")
]
Gpu = Annotated[str | None, typer.Option("--gpu", metavar="KIND", help="GPU kind of the catalogue.")]
Tokens = Annotated[
    float | None, typer.Option("--tokens", metavar="N", help="Tokens of each GPU in a step; default 4096.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**31 - 1, help="Seed of the search.")]
Form = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="Also write files: sglang, trtllm, vllm-ascend, megatron."),
]
Output = Annotated[Path | None, typer.Option("--output", metavar="DIR", help="Folder for the files of --format.")]


def _links(link_speed: float | None, gpu: str | None, tokens: float | None) -> dict[str, Any]:
    """Options of both commands about links, GPUs and tokens, as fields of a request."""
    return {"between_nodes_gbit_per_s_per_gpu": link_speed, "gpu_kind": gpu, "tokens_per_gpu": tokens}


def _files(loads: list[Path] | None, more: list[Path] | None) -> tuple[Path, ...]:
    """All files of counts, as options and as arguments."""
    return (*(loads or ()), *(more or ()))


@app.command()
@reported
def place(  # noqa: PLR0913 - one argument for each option
    *,
    more: More = None,
    loads: Loads = None,
    ranks: Ranks,
    nodes: Nodes = 1,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="Slots of a layer in all; default: one for each expert.")
    ] = None,
    redundant: Annotated[
        int | None, typer.Option("--redundant", min=0, help="Instead of --slots: how many more than experts.")
    ] = None,
    workloads: Annotated[
        str | None,
        typer.Option(
            "--workloads",
            metavar="NAMES",
            help="Plan for these: prefill,decode (the worst counts) or prefill=2,decode=1; default: all.",
        ),
    ] = None,
    worst: Annotated[
        bool, typer.Option("--worst", help="The worst workload counts; so it is without weights.")
    ] = False,
    model: ModelOption = None,
    router: Annotated[
        str | None,
        typer.Option("--router", metavar="K[,G,A]", help="Experts of a token, in A of G groups; if no model."),
    ] = None,
    cluster: ClusterOption = None,
    link_speed: LinkSpeed = None,
    inside_speed: Annotated[
        float | None, typer.Option("--inside-speed", metavar="GBIT_PER_S", help="Inside a node, for each GPU.")
    ] = None,
    gpu: Gpu = None,
    tokens: Tokens = None,
    speeds: Annotated[
        str | None,
        typer.Option(
            "--speeds",
            metavar="SPEED[xRANKS],...",
            help="How fast each rank computes beside the others: 1x24,0.8x8; default: all alike.",
        ),
    ] = None,
    copy_choice: Annotated[
        str | None,
        typer.Option(
            "--copy-choice",
            metavar="nearest|any|both",
            help="Which copy serves a token: nearest, any, or unknown; default: as --format's engine, else both.",
        ),
    ] = None,
    objective: Annotated[
        str | None,
        typer.Option(
            "--objective",
            metavar="balance|locality",
            help="Even loads, or tokens that stay on their GPU from layer to layer; default: balance.",
        ),
    ] = None,
    least_locality: Annotated[
        float | None,
        typer.Option("--least-locality", metavar="SHARE", help="Of the best locality to keep; default 0.98."),
    ] = None,
    seed: Seed = 0,
    effort: Annotated[int, typer.Option("--effort", min=1, max=3, help="Scale of the search.")] = 1,
    form: Form = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Choose which expert lies in which slot of which rank, copies included."""
    from app.cli.experts.expert_options import KnownLinks, MapFiles  # noqa: PLC0415 - the solver takes a second to load
    from app.cli.experts.experts import Place, run_place  # noqa: PLC0415 - see above

    fields = {
        "ranks": ranks,
        "nodes": nodes,
        "slots": slots,
        "redundant_experts": redundant,
        **_links(link_speed, gpu, tokens),
        "inside_node_gbit_per_s_per_gpu": inside_speed,
        "copy_choice": copy_choice,
        "objective": objective,
        "least_locality": least_locality,
        "seed": seed,
        "effort": effort,
    }
    known, wanted = KnownLinks(model, router, cluster), MapFiles(form, output)
    run_place(Place(_files(loads, more), fields, workloads, worst, speeds, known, wanted, as_json))


@app.command()
@reported
def serving(  # noqa: PLR0913 - one argument for each option
    *,
    more: More = None,
    plan: Annotated[str, typer.Option("--plan", metavar="FILE", help="Serving plan that spreads experts.")],
    loads: Loads = None,
    prefill: Annotated[
        str | None,
        typer.Option("--prefill", metavar="NAMES", help="Workloads of prefill; default: by name."),
    ] = None,
    decode: Annotated[
        str | None,
        typer.Option("--decode", metavar="NAMES", help="Workloads of decoding; default: by name."),
    ] = None,
    redundant: Annotated[
        int | None, typer.Option("--redundant", min=0, help="Slots of a layer beyond one for each expert.")
    ] = None,
    cluster: ClusterOption = None,
    link_speed: LinkSpeed = None,
    seed: Seed = 0,
    form: Form = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Place the experts of a serving plan: a map for each phase, for what it meets and on the ranks it has."""
    from app.cli.experts.expert_options import MapFiles  # noqa: PLC0415 - the solver takes a second to load
    from app.cli.experts.phase_experts import PlaceByPhase, run_serving  # noqa: PLC0415 - see above
    from cluster_models.serving.replicas import Phase  # noqa: PLC0415 - see above

    typed = {Phase.PREFILL: prefill, Phase.DECODE: decode}
    said = {phase: [name.strip() for name in text.split(",")] for phase, text in typed.items() if text}
    fields = {"redundant_experts": redundant, "between_nodes_gbit_per_s_per_gpu": link_speed, "seed": seed}
    files = MapFiles(form, output)
    run_serving(PlaceByPhase(plan, _files(loads, more), said, fields, cluster, files, as_json))


@app.command()
@reported
def rebalance(  # noqa: PLR0913 - one argument for each option
    *,
    more: More = None,
    loads: Loads = None,
    running: Annotated[
        Path,
        typer.Option("--running", metavar="FILE", help="The map that runs, as an engine loaded or dumped it."),
    ],
    ranks: Ranks,
    nodes: Nodes = 1,
    workloads: Annotated[
        str | None, typer.Option("--workloads", metavar="NAMES", help="Those that run: decode, or a=2,b=1; all.")
    ] = None,
    target: Annotated[
        float | None, typer.Option("--target", metavar="SHARE", help="Balancedness to reach; default: what pays.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps until the next look.")] = 10_000,
    expert_bytes: Annotated[
        float | None, typer.Option("--expert-bytes", metavar="BYTES", help="One expert of one layer; if no model.")
    ] = None,
    layer_ms: Annotated[
        float | None, typer.Option("--layer-ms", metavar="MS", help="A layer in a step, on balanced ranks.")
    ] = None,
    model: ModelOption = None,
    cluster: ClusterOption = None,
    link_speed: LinkSpeed = None,
    gpu: Gpu = None,
    tokens: Tokens = None,
    seed: Seed = 0,
    form: Form = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Say which moves bring a running map back to balance, what they cost, and whether they pay."""
    from app.cli.experts.expert_options import KnownLinks, MapFiles  # noqa: PLC0415 - see above
    from app.cli.experts.experts import Rebalance, run_rebalance  # noqa: PLC0415 - see above

    fields = {
        "ranks": ranks,
        "nodes": nodes,
        "target_balancedness": target,
        "steps_until_next": steps,
        "expert_bytes": expert_bytes,
        "balanced_layer_ms": layer_ms,
        **_links(link_speed, gpu, tokens),
        "seed": seed,
    }
    known, wanted = KnownLinks(model, None, cluster), MapFiles(form, output)
    run_rebalance(Rebalance(running, _files(loads, more), fields, workloads, known, wanted, as_json))


@app.command()
@reported
def show(
    files: Annotated[list[Path], typer.Argument(metavar="FILES...", help="Files, folders and archives of counts.")],
    experts: Annotated[
        int | None, typer.Option("--experts", min=1, help="Experts of a layer, where traces may lack some.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what routing statistics hold: skew by layer, and how alike the workloads are."""
    from app.cli.experts.experts import run_show  # noqa: PLC0415 - see above

    run_show(files, experts=experts, as_json=as_json)
