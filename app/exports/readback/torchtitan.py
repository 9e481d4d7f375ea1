"""Read arguments as torchtitan would, and check that its TOML says the same."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from app.exports.claims import Claims
from app.exports.contract import Files, unreadable
from app.exports.readback.words import array, expert_order, file_named, flags, one, setting_number
from cluster_models.training.interleaving import equal_group
from cluster_models.training.schedules import PipelineSchedule, in_groups, rows_of
from cluster_models.training.workload import WHOLE_OFFLOAD

TORCHTITAN_SAYS: Final = frozenset(
    {"world", "tensor", "pipeline", "data", "context", "expert", "expert_tensor", "virtual_pipeline"}
    | {"layers", "stage_layers", "micro_batch", "micro_batch_group", "global_batch", "sequence_length"}
    | {"schedule", "sharding_ranks", "optimizer_offload"}
)
OFFLOAD: Final = "training.enable_cpu_offload"
"""Parameters, gradients and optimizer states of FSDP in the node's memory."""
SCHEDULES: Final = {
    (PipelineSchedule.ONE_F_ONE_B, False): "1F1B",
    (PipelineSchedule.ONE_F_ONE_B, True): "Interleaved1F1B",
    (PipelineSchedule.GPIPE, False): "GPipe",
    (PipelineSchedule.GPIPE, True): "LoopedBFS",
    (PipelineSchedule.ZERO_BUBBLE, True): "InterleavedZeroBubble",
    (PipelineSchedule.ZB_V, True): "ZBVZeroBubble",
    (PipelineSchedule.DUALPIPE_V, True): "DualPipeV",
}
"""PyTorch's names (``get_schedule_class``), by whether a rank has several stages."""

_PIPELINE: Final = "parallelism.pipeline_parallel_"
_MODULES: Final = "parallelism.module_fqns_per_model_part"


def read_torchtitan(files: Files) -> Claims:
    """Claims of ``torchtitan_args.sh``; refuses a TOML beside it that says anything else."""
    text = file_named(files, "torchtitan_args.sh")
    given = flags(array(text, "TORCHTITAN_ARGS"))
    settings = {flag.removeprefix("--"): " ".join(given[flag]) for flag in given}
    claims = _claims(settings, text)
    if order := expert_order(text):
        claims = replace(claims, expert_order=order)
    for file in files:
        if file.name.endswith(".toml") and _claims(_flat(file.text), file.text) != replace(
            claims, expert_order=None
        ):
            raise unreadable("exports.torchtitan.toml", file.text, "does not say what the arguments say")
    return claims


def split_layers(layers: int, stages: int, first: int, last: int) -> tuple[int, ...]:
    """Decoder layers of each stage as torchtitan cuts them; empty where it would refuse.

    The first stage counts as ``first`` layers more, the last as ``last`` more, and ``layers + first + last`` are
    shared out evenly, the rest one each to the first stages.
    """
    if stages == 1:
        return (layers,)
    each, rest = divmod(layers + first + last, stages)
    if not each or first > each or last > each:
        return ()
    counts = [each + (stage < rest) for stage in range(stages)]
    counts[0] -= first
    counts[-1] -= last
    return tuple(counts)


def _claims(settings: Mapping[str, str], text: str) -> Claims:
    degrees = {
        name: setting_number(settings, f"parallelism.{name}_degree")
        for name in (
            "data_parallel_replicate",
            "data_parallel_shard",
            "tensor_parallel",
            "context_parallel",
            "expert_parallel",
            "pipeline_parallel",
        )
    }
    data = degrees["data_parallel_replicate"] * degrees["data_parallel_shard"]
    groups = 1 < degrees["data_parallel_replicate"] < data
    tensor, context = degrees["tensor_parallel"], degrees["context_parallel"]
    pipeline = degrees["pipeline_parallel"]
    total, listed = one(r"^# For a model of (\d+) decoder layers; by pipeline rank: (.*)$", text, "layers")
    layers = int(total)
    schedule, several = _schedule(settings) if pipeline > 1 else (PipelineSchedule.ONE_F_ONE_B, False)
    if _MODULES in settings:
        counts = _counts_of_modules(settings[_MODULES].split(" "), layers)
        stages = len(counts)
        if (stages > pipeline) != several:
            raise unreadable("exports.pipeline_parallel_schedule", stages, "is not a schedule for so many stages")
    else:
        stages = _stages(settings, layers) if several else pipeline
        first, last = (int(settings.get(f"{_PIPELINE}{end}_stage_less_layers", "0")) for end in ("first", "last"))
        counts = split_layers(layers, stages, first, last)
    rows = () if stages % pipeline else rows_of(schedule, pipeline, counts)
    if not counts or sum(rows, ()) != tuple(int(number) for number in listed.replace(";", "").split()):
        raise unreadable("exports.parallelism", dict(settings), f"would not cut {layers} layers into {listed}")
    local, batch = (setting_number(settings, f"training.{name}_batch_size") for name in ("local", "global"))
    if pipeline > 1 and local * data != batch:
        raise unreadable("exports.training.local_batch_size", local, f"on {data} data ranks is not {batch}")
    micro_batch = setting_number(settings, f"{_PIPELINE}microbatch_size") if pipeline > 1 else local
    turns = several and in_groups(schedule)
    return Claims(
        world=data * tensor * context * pipeline,
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        context=context,
        expert=degrees["expert_parallel"],
        expert_tensor=1,
        virtual_pipeline=stages // pipeline,
        micro_batch_group=(equal_group(pipeline, local // micro_batch) or 0) if turns else 1,
        layers=layers,
        stage_layers=rows,
        schedule=schedule,
        sharding_ranks=degrees["data_parallel_shard"] * context if groups else 0,
        optimizer_offload=WHOLE_OFFLOAD if settings.get(OFFLOAD, "False") != "False" else 0,
        micro_batch=micro_batch,
        global_batch=batch,
        sequence_length=setting_number(settings, "training.seq_len"),
    )


def _counts_of_modules(stages: Sequence[str], layers: int) -> tuple[int, ...]:
    """Decoder layers of stages whose modules are named; every module of the model must be there once, in order."""
    named = [stage.split(",") for stage in stages]
    found = [name for stage in named for name in stage]
    middle = [f"layers.{layer}" for layer in range(layers)]
    if found not in (["tok_embeddings", *middle, "norm", head] for head in ("lm_head", "output")):
        raise unreadable("exports.module_fqns_per_model_part", stages, f"are not the modules of {layers} layers")
    return tuple(sum(name.startswith("layers.") for name in stage) for stage in named)


def _schedule(settings: Mapping[str, str]) -> tuple[PipelineSchedule, bool]:
    """The schedule, and whether it is for several stages on a rank."""
    name = settings.get(f"{_PIPELINE}schedule")
    found = next((each for each, known in SCHEDULES.items() if known == name), None)
    if found is None:
        raise unreadable("exports.pipeline_parallel_schedule", name, "is not a schedule that is planned")
    return found


def _stages(settings: Mapping[str, str], layers: int) -> int:
    """Stages of all ranks, by the layers of each."""
    extra = sum(setting_number(settings, f"{_PIPELINE}{end}_stage_less_layers") for end in ("first", "last"))
    return -(-(layers + extra) // setting_number(settings, f"{_PIPELINE}layers_per_stage"))


def _flat(toml: str) -> dict[str, str]:
    return {f"{table}.{name}": _text(v) for table, rows in tomllib.loads(toml).items() for name, v in rows.items()}


def _text(value: object) -> str:
    """A value of the TOML as the command line has it."""
    return " ".join(",".join(stage) for stage in value) if isinstance(value, list) else str(value)
