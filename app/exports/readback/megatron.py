"""What Megatron-LM would make of a list of arguments, by the rules of its own argument parser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from app.exports.contract import Claims, Files, unreadable
from app.exports.readback.words import array, expert_order, file_named, flag_number, flags, value
from cluster_models.plan import RankOrder
from cluster_models.workload import Sharding

MEGATRON_SAYS: Final = frozenset(
    {
        "tensor",
        "pipeline",
        "context",
        "expert",
        "expert_tensor",
        "virtual_pipeline",
        "rank_order",
        "layers",
        "stage_layers",
        "micro_batch",
        "global_batch",
        "sequence_length",
        "sharding",
        "experts",
        "expert_order",
    }
)

Rows = tuple[tuple[int, ...], ...]


def read_megatron(files: Files) -> Claims:
    """What the arguments of ``megatron_args.sh`` say."""
    return claims_of_arguments(file_named(files, "megatron_args.sh"))


def claims_of_arguments(text: str) -> Claims:
    """What the array ``MEGATRON_ARGS`` of a script says, and its ``EXPERT_ORDER`` where it has one."""
    given = flags(array(text, "MEGATRON_ARGS"))
    pipeline = flag_number(given, "--pipeline-model-parallel-size")
    layers = flag_number(given, "--num-layers")
    stage_layers = _stage_layers(given, layers, pipeline)
    experts = flag_number(given, "--num-experts") if "--num-experts" in given else None
    expert = flag_number(given, "--expert-model-parallel-size") if experts else 1
    expert_tensor = flag_number(given, "--expert-tensor-parallel-size") if experts else 1
    return Claims(
        tensor=flag_number(given, "--tensor-model-parallel-size"),
        pipeline=pipeline,
        context=flag_number(given, "--context-parallel-size"),
        expert=expert,
        expert_tensor=expert_tensor,
        virtual_pipeline=len(stage_layers),
        rank_order=RankOrder.PIPELINE_BEFORE_DATA
        if "--use-tp-pp-dp-mapping" in given
        else RankOrder.DATA_BEFORE_PIPELINE,
        layers=layers,
        stage_layers=stage_layers,
        micro_batch=flag_number(given, "--micro-batch-size"),
        global_batch=flag_number(given, "--global-batch-size"),
        sequence_length=flag_number(given, "--seq-length"),
        sharding=sharding_of(
            parameters="--use-megatron-fsdp" in given, optimizer="--use-distributed-optimizer" in given
        ),
        experts=experts,
        expert_order=expert_order(text) if experts else None,
    )


def sharding_of(*, parameters: bool, optimizer: bool) -> Sharding:
    """What Megatron shares out; sharded parameters need its sharded optimizer."""
    if parameters and not optimizer:
        raise unreadable("exports.sharding", parameters, "shards parameters and not the optimizer")
    return Sharding.PARAMETERS if parameters else Sharding.OPTIMIZER if optimizer else Sharding.NONE


def rows_of_layout(layout: str, pipeline: int) -> Rows:
    """Layers of each virtual stage (row) and pipeline rank from a layout string; refuses what Megatron would.

    Grammar: ``E`` embedding, ``t`` decoder layer, ``m`` prediction layer, ``L`` loss, ``x*n`` repeats a letter,
    ``(..)*n`` a group, ``|`` ends a stage, commas are decoration; position = virtual stage x ranks + rank.
    """
    stages = _expanded(layout.replace(",", "").replace(" ", "")).split("|")
    if len(stages) % pipeline:
        raise unreadable("exports.layout", layout, f"its {len(stages)} stages are no multiple of {pipeline} ranks")
    letters = "".join(stages)
    if not re.fullmatch(r"Et*m*L", letters):
        raise unreadable("exports.layout", layout, "must begin with E, end with L and have each once")
    counts = tuple(stage.count("t") for stage in stages)
    return tuple(counts[start : start + pipeline] for start in range(0, len(counts), pipeline))


def even_rows(layers: int, pipeline: int, virtual: int) -> Rows:
    """As many layers everywhere; refuses what does not divide."""
    if layers % (pipeline * virtual):
        raise unreadable("exports.layers", layers, f"do not divide by {pipeline} ranks x {virtual} virtual stages")
    return ((layers // (pipeline * virtual),) * pipeline,) * virtual


def _stage_layers(given: Mapping[str, tuple[str, ...]], layers: int, pipeline: int) -> Rows:
    if "--pipeline-model-parallel-layout" in given:
        rows = rows_of_layout(value(given, "--pipeline-model-parallel-layout"), pipeline)
        if sum(map(sum, rows)) != layers:
            raise unreadable("exports.layout", rows, f"does not hold {layers} layers")
        return rows
    if "--num-layers-per-virtual-pipeline-stage" in given:
        chunk = flag_number(given, "--num-layers-per-virtual-pipeline-stage")
        if not chunk or layers % (chunk * pipeline):
            raise unreadable("exports.layers", layers, f"do not divide by {pipeline} ranks x {chunk} layers")
        return even_rows(layers, pipeline, layers // (chunk * pipeline))
    return even_rows(layers, pipeline, 1)


def _expanded(layout: str) -> str:
    """The layout without repetitions; groups do not nest in what we write."""
    most = 100_000
    for pattern in (r"([A-Za-z])\*(\d+)", r"\(([^()]*)\)\*(\d+)"):
        layout = re.sub(pattern, lambda match: match[1] * min(int(match[2]), most), layout)
    return layout
