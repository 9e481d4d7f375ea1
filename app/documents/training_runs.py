"""A CSV table of measured training steps, one run a line; ``docs/calibrating.md`` explains the columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from app.documents.configuration import even_stage_layers
from app.documents.framework import SETTINGS, FrameworkSettings, WireFact, to_framework
from app.documents.reading import InvalidDocument, problems_of
from app.documents.run_checks import check_run
from app.documents.table_cells import Line, problems_of_lines, read_lines
from cluster_models.calibration.training_run import MemoryCounter, TrainingRun
from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_model
from cluster_models.model.experts import Experts
from cluster_models.training.frameworks import Framework
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.recompute import read_recomputation
from cluster_models.training.workload import (
    LONGEST_SEQUENCE,
    MOST_SEQUENCES,
    WHOLE_OFFLOAD,
    Recompute,
    RecomputeModule,
    Sharding,
    TrainingWorkload,
)
from cluster_models.units import GBIT, GIB

MOST_RUNS: Final = 1000
_MOST: Final = 10**6
_SIZES: Final = ("layers", "hidden", "heads", "vocab")
_MORE_SIZES: Final = (
    "kv_heads",
    "head_size",
    "ffn_hidden",
    "gated_mlp",
    "tied_embeddings",
    "experts",
    "topk",
    "moe_ffn_hidden",
    "shared_expert_ffn",
    "moe_layers",
)
REQUIRED: Final = ("gpu", "framework", "num_gpus", "seq_len", "micro_batch", "global_batch", "iter_time_s")
COLUMNS: Final = (
    "id",
    "model",
    *REQUIRED,
    *_SIZES,
    *_MORE_SIZES,
    "gpus_per_node",
    "gpus_per_domain",
    "network_gbits_per_gpu",
    "precision",
    "tp",
    "pp",
    "cp",
    "ep",
    "etp",
    "vpp",
    "dp",
    "zero",
    *FrameworkSettings.model_fields,
    "recompute",
    "offload_percent",
    "mem_gib_per_gpu",
    "memory_counter",
    "sweep_id",
    "model_name",
    "source",
    "notes",
)
"""Every column; the last two are for people and are not read."""
SHARDINGS: Final = {
    "0": Sharding.NONE,
    "1": Sharding.OPTIMIZER,
    "2": Sharding.GRADIENTS,
    "3": Sharding.PARAMETERS,
    "fsdp": Sharding.PARAMETERS,
    "dist-opt": Sharding.OPTIMIZER,
}
_COUNTERS: Final = {str(each): each for each in MemoryCounter if each is not MemoryCounter.FORMULA}
_SWITCH: Final = {"0": False, "1": True, "false": False, "true": True}


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """Runs with the group of each: runs of one sweep weigh together as much as a few single ones.

    ``described`` are the frameworks of the runs that are not shipped, as described, without the settings of a run.
    """

    runs: tuple[TrainingRun, ...]
    groups: tuple[str, ...]
    described: Mapping[str, Framework] = field(default_factory=dict)


def read_training_runs(
    text: str, *, described: Mapping[str, Framework] | None = None, what: str = "runs"
) -> MeasuredRuns:
    """The runs of a CSV text, of shipped frameworks and of those ``described``.

    Raises ``InvalidInput`` with lines, column and remedy of everything that is wrong.
    """
    described = described or {}
    lines = list(read_lines(text, known=COLUMNS, required=REQUIRED, most=MOST_RUNS, what=what))
    found = [_run(line, described) for line in lines]
    if problems := problems_of_lines(lines):
        raise InvalidDocument(problems)
    runs = tuple(run for run in found if run is not None)
    if not runs:
        raise InvalidInput(what, "", "holds no run", "put one run on each line below the head")
    named = {run.workload.framework.name for run in runs}
    for name in described:
        if name not in named:
            remedy = "name it in the column framework, or leave its description out"
            raise InvalidInput("frameworks", name, "is the framework of no run", remedy)
    groups = tuple(line.cells.get("sweep_id") or run.name for line, run in zip(lines, runs, strict=True))
    return MeasuredRuns(runs, groups, described)


def _run(line: Line, described: Mapping[str, Framework]) -> TrainingRun | None:
    """The run of a line, or ``None`` with the problems noted."""
    gpu, framework, architecture = line.gpu(), _framework(line, described), _architecture(line)
    workload = _workload(line)
    per_node = line.whole("gpus_per_node", most=_MOST) or 8
    degrees = _degrees(line)
    sharding = line.choice("zero", SHARDINGS)
    recompute = _recomputation(line)
    micro_batch = line.whole("micro_batch", required="sequences of one micro-batch", most=MOST_SEQUENCES)
    step_s = line.number_in("iter_time_s", required="seconds of one step, after warm-up")
    memory_gib = line.number_in("mem_gib_per_gpu")
    counter = line.choice("memory_counter", _COUNTERS) or MemoryCounter.DRIVER
    domain = line.whole("gpus_per_domain", most=_MOST) or per_node
    network = _network(line, degrees, domain)
    if sharding is None and degrees is not None and degrees.data > 1 and not line.text("zero"):
        line.problem("zero", f"is missing with {degrees.data} data ranks", f"write {', '.join(SHARDINGS)}")
    if line.problems or not (gpu and framework and architecture and workload and degrees and micro_batch):
        return None
    try:
        run = TrainingRun(
            name=line.text("id") or f"line {line.number}",
            architecture=architecture,
            workload=replace(workload, framework=framework),
            configuration=Configuration(
                degrees=degrees,
                micro_batch=micro_batch,
                recompute=recompute[0],
                recompute_modules=recompute[1],
                recompute_layers=recompute[2],
                sharding=sharding or Sharding.NONE,
                optimizer_offload=line.whole("offload_percent", most=WHOLE_OFFLOAD) or 0,
                rank_order=RankOrder.DATA_BEFORE_PIPELINE,
                stage_layers=tuple(map(tuple, even_stage_layers(architecture.layers, degrees))),
            ),
            gpu=gpu.in_domains_of(domain),
            gpus_per_node=per_node,
            gpus_per_domain=domain,
            network_bytes_per_s=gpu.scale_up_bytes_per_s if network is None else network * GBIT,
            step_s=step_s,
            peak_memory_bytes=None if memory_gib is None else memory_gib * GIB,
            memory_counter=counter,
        )
        check_run(line, run)
    except InvalidInput as error:
        line.problems += [replace(found, field=f": {found.field}") for found in problems_of(error)]
        return None
    return None if line.problems else run


def _framework(line: Line, described: Mapping[str, Framework]) -> Framework | None:
    stated = {each.name: _setting(line, each) for each in SETTINGS}
    return line.named(
        "framework",
        lambda name: to_framework(name, FrameworkSettings.model_validate(stated), described),
        required="name a framework generation, like megatron-core-0.12",
    )


def _setting(line: Line, fact: WireFact) -> object:
    """Value of a fact in its cell: a word, a number or a switch."""
    if fact.kind in (int, float):
        return line.number_in(fact.name, zero=True)
    return line.choice(fact.name, {each: fact.kind(each) for each in fact.choices} or _SWITCH)


def _workload(line: Line) -> TrainingWorkload | None:
    sequence = line.whole("seq_len", required="tokens of one sequence", most=LONGEST_SEQUENCE)
    batch = line.whole("global_batch", required="sequences of one step, all ranks", most=MOST_SEQUENCES)
    precision = line.choice("precision", {str(each): each for each in Precision}) or Precision.BF16
    if sequence is None or batch is None:
        return None
    return TrainingWorkload(sequence_length=sequence, global_batch=batch, precision=precision, memory_headroom=0.0)


def _recomputation(line: Line) -> tuple[Recompute, frozenset[RecomputeModule], int]:
    """Policy, modules and layers of a run, ``none`` where the cell is empty or wrong."""
    try:
        return read_recomputation(line.text("recompute") or Recompute.NONE)
    except InvalidInput as error:
        line.problem("recompute", error.problem, error.remedy)
        return read_recomputation(Recompute.NONE)


def _degrees(line: Line) -> Degrees | None:
    gpus = line.whole("num_gpus", required="GPUs of the run", most=_MOST)
    tensor, pipeline, context, expert, virtual, cut = (
        line.whole(name, most=_MOST) or 1 for name in ("tp", "pp", "cp", "ep", "vpp", "etp")
    )
    data = line.whole("dp", most=_MOST)
    if gpus is None or line.problems:
        return None
    others = tensor * pipeline * context
    if gpus % others:
        line.problem("num_gpus", f"does not divide by tp x pp x cp = {others}")
        return None
    if data is not None and data * others != gpus:
        line.problem("dp", f"tp x pp x cp x dp makes {data * others} GPUs, num_gpus {gpus}", "leave dp out")
        return None
    return Degrees(tensor, pipeline, gpus // others, context, expert, virtual, cut)


def _network(line: Line, degrees: Degrees | None, domain: int) -> float | None:
    found = line.number_in("network_gbits_per_gpu")
    if found is None and degrees is not None and degrees.gpus > domain and not line.text("network_gbits_per_gpu"):
        what = f"is missing: {degrees.gpus} GPUs reach beyond {domain} joined by NVLink"
        line.problem("network_gbits_per_gpu", what, "give the nominal rate of the network per GPU, like 400")
    return found


def _architecture(line: Line) -> Architecture | None:
    name = line.text("model")
    if name:
        given = [column for column in (*_SIZES, *_MORE_SIZES) if line.text(column)]
        if given:
            line.problem(
                given[0], "is given beside a model of the catalogue", "empty model, or leave the sizes out"
            )
        return line.named("model", catalogue_model)
    remedy = f"name a model of the catalogue, or give {', '.join(_SIZES)}"
    if not any(line.text(each) for each in _SIZES):
        line.problem("model", "is missing", remedy)
        return None
    layers, hidden, heads, vocabulary = (line.whole(each, required=remedy, most=_MOST) for each in _SIZES)
    kv_heads, head_size, mlp = (
        line.whole(each, most=_MOST, zero=each == "ffn_hidden") for each in ("kv_heads", "head_size", "ffn_hidden")
    )
    gated, tied = (line.choice(each, _SWITCH) for each in ("gated_mlp", "tied_embeddings"))
    experts = _experts(line, layers)
    if line.problems or not (layers and hidden and heads and vocabulary):
        return None
    if mlp is None:
        mlp = 0 if experts else 4 * hidden
    try:
        return Architecture(
            name=line.text("model_name") or "own model",
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=kv_heads or heads,
            head_size=head_size or max(hidden // heads, 1),
            mlp_hidden=mlp,
            vocabulary=vocabulary,
            gated_mlp=bool(gated),
            tied_embeddings=bool(tied),
            experts=experts,
        )
    except InvalidInput as error:
        line.problem("layers", f"{error.field}: {error.problem}", error.remedy)
        return None


def _experts(line: Line, layers: int | None) -> Experts | None:
    count = line.whole("experts", most=_MOST, zero=True)
    if not count:
        return None
    active, hidden = (
        line.whole(each, required="a model with experts needs it", most=_MOST)
        for each in ("topk", "moe_ffn_hidden")
    )
    shared = line.whole("shared_expert_ffn", most=_MOST, zero=True) or 0
    sparse = line.whole("moe_layers", most=_MOST)
    if layers is None or active is None or hidden is None:
        return None
    if sparse is not None and sparse > layers:
        line.problem("moe_layers", f"is more than the {layers} layers")
        return None
    try:
        return Experts(
            count=count,
            active=active,
            hidden=hidden,
            shared_hidden=shared,
            dense_layers=layers - (sparse or layers),
        )
    except InvalidInput as error:
        line.problem("experts", f"{error.field}: {error.problem}", error.remedy)
        return None
