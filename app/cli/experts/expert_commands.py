"""``meshwright experts``: its commands, whose options are fields of the requests over HTTP, and files.

Loaded when one of them is looked for, since requests take a second.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.common_options import Json
from app.cli.document_options import with_fields
from app.cli.endings import reported
from app.cli.experts.expert_options import KnownLinks, MapFiles, flags_of
from app.cli.experts.experts import Place, Rebalance, run_place, run_rebalance, run_show
from app.cli.experts.phase_experts import PlaceByPhase, run_serving
from app.experts.rebalancing import RebalanceFields
from app.experts.request import PlacementFields
from cluster_models.serving.replicas import Phase

app = typer.Typer()

Loads = Annotated[
    list[Path] | None,
    typer.Option("--loads", metavar="FILES...", help="Counts of expert selections: files, folders, archives."),
]
More = Annotated[list[Path] | None, typer.Argument(metavar="[FILES]...", show_default=False)]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="FILE_OR_NAME", help="The model that was recorded.")
]
ClusterOption = Annotated[
    str | None, typer.Option("--cluster", metavar="FILE", help="Cluster file whose measured links count.")
]
Form = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", help="Also write files: sglang, trtllm, vllm-ascend, megatron."),
]
Output = Annotated[Path | None, typer.Option("--output", metavar="DIR", help="Folder for the files of --format.")]


LINKS = ("between_nodes_gbit_per_s_per_gpu", "gpu_kind", "tokens_per_gpu")


def _files(loads: list[Path] | None, more: list[Path] | None) -> tuple[Path, ...]:
    """All files of counts, as options and as arguments."""
    return (*(loads or ()), *(more or ()))


PLACED = (
    "ranks",
    "nodes",
    "slots",
    "redundant_experts",
    *LINKS,
    "inside_node_gbit_per_s_per_gpu",
    "copy_choice",
    "objective",
    "least_locality",
    "seed",
    "effort",
)


@app.command()
@reported
@with_fields(PlacementFields, flags_of(*PLACED))
def place(  # noqa: PLR0913 - one argument for each option
    *,
    fields: dict[str, Any],
    more: More = None,
    loads: Loads = None,
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
    speeds: Annotated[
        str | None,
        typer.Option(
            "--speeds",
            metavar="SPEED[xRANKS],...",
            help="How fast each rank computes beside the others: 1x24,0.8x8; default: all alike.",
        ),
    ] = None,
    form: Form = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Choose which expert lies in which slot of which rank, copies included."""
    known, wanted = KnownLinks(model, router, cluster), MapFiles(form, output)
    run_place(Place(_files(loads, more), fields, workloads, worst, speeds, known, wanted, as_json))


@app.command()
@reported
@with_fields(PlacementFields, flags_of("redundant_experts", "between_nodes_gbit_per_s_per_gpu", "seed"))
def serving(  # noqa: PLR0913 - one argument for each option
    *,
    fields: dict[str, Any],
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
    cluster: ClusterOption = None,
    form: Form = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Place the experts of a serving plan: a map for each phase, for what it meets and on the ranks it has."""
    typed = {Phase.PREFILL: prefill, Phase.DECODE: decode}
    said = {phase: [name.strip() for name in text.split(",")] for phase, text in typed.items() if text}
    files = MapFiles(form, output)
    run_serving(PlaceByPhase(plan, _files(loads, more), said, fields, cluster, files, as_json))


REBALANCED = (
    "ranks",
    "nodes",
    "target_balancedness",
    "steps_until_next",
    "expert_bytes",
    "balanced_layer_ms",
    *LINKS,
    "seed",
)


@app.command()
@reported
@with_fields(RebalanceFields, flags_of(*REBALANCED))
def rebalance(  # noqa: PLR0913 - one argument for each option
    *,
    fields: dict[str, Any],
    more: More = None,
    loads: Loads = None,
    running: Annotated[
        Path,
        typer.Option("--running", metavar="FILE", help="The map that runs, as an engine loaded or dumped it."),
    ],
    workloads: Annotated[
        str | None, typer.Option("--workloads", metavar="NAMES", help="Those that run: decode, or a=2,b=1; all.")
    ] = None,
    model: ModelOption = None,
    cluster: ClusterOption = None,
    form: Form = None,
    output: Output = None,
    as_json: Json = False,
) -> None:
    """Say which moves bring a running map back to balance, what they cost, and whether they pay."""
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
    run_show(files, experts=experts, as_json=as_json)
