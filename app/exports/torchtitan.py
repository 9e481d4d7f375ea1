"""torchtitan: command line of 0.3 (``--parallelism.*``, no TOML any more) and the TOML of the releases before.

Fields as in ``torchtitan/config/configs.py`` 0.3; ranks as ``torchtitan/distributed/parallel_dims.py`` numbers them
(pipeline slowest, then data, context, tensor; expert groups over consecutive ranks of a stage); stages as
``_generate_llm_fqn_per_model_part`` of ``torchtitan/distributed/pipeline_parallel.py`` cuts them.
"""

from __future__ import annotations

import json
from typing import Final

from app.exports.context_exchanges import refuse_exchange
from app.exports.contract import (
    ZIP,
    Export,
    ExportFile,
    Files,
    refuse_adapters,
    refuse_gradients,
    refuse_method,
    unsupported,
)
from app.exports.launch_value import Launch
from app.exports.megatron import documents_unsaid, expert_order_lines
from app.exports.offloading import refuse_layers, refuse_offload
from app.exports.optimizer_states import refuse_optimizer, refuse_states
from app.exports.options import Options
from app.exports.power import cap_remarks
from app.exports.readback.torchtitan import OFFLOAD, SCHEDULES, TORCHTITAN_SAYS, read_torchtitan, split_layers
from app.exports.recomputation import refuse_modules
from cluster_models.cluster.gpus import Precision
from cluster_models.training.interleaving import Interleaving, equal_group
from cluster_models.training.plan import RankOrder
from cluster_models.training.schedules import PipelineSchedule, as_run
from cluster_models.training.workload import Sharding

Setting = int | str | tuple[tuple[str, ...], ...]
Settings = dict[str, dict[str, Setting]]
_HEAD: Final = "lm_head"
"""The output layer since 0.3."""
_HEAD_BEFORE: Final = "output"


def render_torchtitan(launch: Launch, options: Options) -> Files:  # noqa: ARG001 - the shape of every renderer
    """``torchtitan_args.sh`` and, where releases before 0.3 can run it, ``torchtitan.toml``."""
    _refuse(launch)
    settings = _settings(launch)
    rows = launch.configuration.stage_layers
    listed = "; ".join(" ".join(map(str, row)) for row in rows)
    generation = launch.workload.framework.generation
    about = [
        f"# For a model of {launch.layers} decoder layers; by pipeline rank: {listed}",
        "# Ranks follow the order of the host list; start with the torchrun or slurm export.",
        f"# The plan recomputes activations: {launch.configuration.recomputation}.",
    ]
    about += [f"# {remark}" for remark in cap_remarks(launch)]
    if not generation.startswith("torchtitan"):
        about.append(f"# Priced as {generation}: under torchtitan a step takes another time.")
    if launch.configuration.sharding is Sharding.OPTIMIZER:
        about.append(
            "# Nearest to a sharded optimizer: FSDP that gathers weights once a step (gradients sharded too)."
        )
    about += [f"# Told by data and model flavor: {each}." for each in documents_unsaid(launch.workload)]
    if launch.workload.precision not in {Precision.BF16, Precision.FP32}:
        about.append(f"# {launch.workload.precision} products: choose the model's converter for them.")
    if launch.configuration.schedule.splits_backward:
        about.append("# The schedule splits backward passes, which torch.compile does not: priced without it.")
    arguments = [
        f"    --{table}.{name} {_word(value)}" for table, rows in settings.items() for name, value in rows.items()
    ]
    if overlaps := _overlaps_tensor(launch):
        arguments += ["    --compile.enable", "    --compile.enable_async_tensor_parallel"]
    if offloads := launch.configuration.optimizer_offload > 0:
        arguments.append(f"    --{OFFLOAD}")
    script = [*about, "TORCHTITAN_ARGS=(", *arguments, ")", *expert_order_lines(launch.plan)]
    files = [ExportFile("torchtitan_args.sh", "\n".join(script) + "\n")]
    fold = launch.degrees.tensor * launch.degrees.context
    if launch.degrees.expert == 1 or launch.degrees.expert % fold == 0:
        if offloads:
            table, _, name = OFFLOAD.partition(".")
            settings[table][name] = True
        if overlaps:
            settings["parallelism"]["enable_async_tensor_parallel"] = True
            settings["compile"] = {"enable": True}
        files.append(ExportFile("torchtitan.toml", _toml(about, settings, str(launch.configuration.recompute))))
    return tuple(files)


def _overlaps_tensor(launch: Launch) -> bool:
    """Whether tensor parallel collectives are priced beside matrix products, as ``torch.compile`` arranges them."""
    framework = as_run(launch.workload.framework, launch.configuration.schedule)
    known = framework.interleaving is Interleaving.PYTORCH and framework.overlap_tensor
    return known and launch.degrees.tensor > 1


def _refuse(launch: Launch) -> None:
    refuse_method("torchtitan", launch)
    refuse_adapters("torchtitan", launch)
    refuse_gradients("torchtitan", launch)
    refuse_exchange("torchtitan", launch)
    parts = sorted(launch.plan.architecture.parts) if launch.plan.architecture else []
    if parts:
        name, has = launch.plan.model, ", ".join(parts).replace("_", " ")
        raise unsupported("torchtitan", "model", name, f"its models have no {has}", "use transformers")
    refuse_modules("torchtitan", launch)
    refuse_states("torchtitan", launch)
    refuse_optimizer("torchtitan", launch)
    if launch.configuration.sharding is not Sharding.PARAMETERS:
        refuse_offload("torchtitan", launch, remedy="plan with sharding parameters, or export megatron")
    refuse_offload("torchtitan", launch, takes=True)
    refuse_layers("torchtitan", launch)
    configuration, degrees = launch.configuration, launch.degrees
    if configuration.rank_order is RankOrder.PIPELINE_BEFORE_DATA and degrees.pipeline > 1 and degrees.data > 1:
        raise unsupported(
            "torchtitan", "rank_order", str(configuration.rank_order), "its mesh puts pipeline ranks last"
        )
    if degrees.expert_tensor > 1:
        raise unsupported(
            "torchtitan",
            "degrees.expert_tensor",
            degrees.expert_tensor,
            "0.3 does not cut experts beside expert groups, releases before it only as far as the other layers",
            "plan with expert_tensor pinned to 1, or export megatron",
        )
    shared = degrees.context * degrees.tensor
    shared *= degrees.data if configuration.sharding is not Sharding.NONE else 1
    if shared % degrees.expert:
        raise unsupported(
            "torchtitan",
            "degrees.expert",
            degrees.expert,
            f"expert groups share out {shared} ranks (sharded data x context x tensor)",
            "plan with sharded parameters or another expert degree",
        )
    if configuration.schedule is PipelineSchedule.ZERO_BUBBLE and degrees.virtual_pipeline == 1:
        raise unsupported(
            "torchtitan",
            "schedule",
            str(configuration.schedule),
            "its zero-bubble schedules want several stages on a rank",
            "plan with a framework of torchtitan",
        )
    if launch.micro_batch_group > 1 and launch.micro_batch_group != equal_group(
        degrees.pipeline, launch.micro_batches
    ):
        raise unsupported(
            "torchtitan",
            "degrees.virtual_pipeline",
            degrees.virtual_pipeline,
            f"{launch.micro_batches} micro-batches pass virtual stages in groups of {launch.micro_batch_group}, "
            "which its schedule makes otherwise or refuses",
            "plan with a framework of torchtitan, or export megatron",
        )
    if launch.workload.precision is Precision.FP16:
        raise unsupported("torchtitan", "precision", "fp16", "its mixed precision is bfloat16 or float32")


def _settings(launch: Launch) -> Settings:
    configuration, degrees, workload = launch.configuration, launch.degrees, launch.workload
    sharded = configuration.sharding is not Sharding.NONE
    shards = (configuration.sharding_ranks // degrees.context or degrees.data) if sharded else 1
    # A pipeline is fed the whole share of its data rank at once; without one, micro-batches are accumulated.
    local = workload.global_batch // degrees.data if degrees.pipeline > 1 else configuration.micro_batch
    parallelism: dict[str, Setting] = {
        "data_parallel_replicate_degree": degrees.data // shards,
        "data_parallel_shard_degree": shards,
        "fsdp_reshard_after_forward": "always" if configuration.sharding is Sharding.PARAMETERS else "never",
        "tensor_parallel_degree": degrees.tensor,
        "context_parallel_degree": degrees.context,
        "expert_parallel_degree": degrees.expert,
        "pipeline_parallel_degree": degrees.pipeline,
    }
    return {
        "training": {
            "local_batch_size": local,
            "global_batch_size": workload.global_batch,
            "seq_len": workload.sequence_length,
            "mixed_precision_param": "float32" if workload.precision is Precision.FP32 else "bfloat16",
        },
        "parallelism": parallelism | (_pipeline(launch) if degrees.pipeline > 1 else {}),
    }


def _pipeline(launch: Launch) -> dict[str, Setting]:
    virtual = launch.degrees.virtual_pipeline
    found: dict[str, Setting] = {
        "pipeline_parallel_schedule": SCHEDULES[launch.configuration.schedule, virtual > 1],
        "pipeline_parallel_microbatch_size": launch.configuration.micro_batch,
    }
    if (ends := _less_layers(launch)) is None:
        return found | {"module_fqns_per_model_part": _modules(launch)}
    first, last = ends
    found["pipeline_parallel_first_stage_less_layers"] = first
    found["pipeline_parallel_last_stage_less_layers"] = last
    if virtual > 1:
        found["pipeline_parallel_layers_per_stage"] = _layers_per_stage(launch, first + last)
    return found


def _layers_per_stage(launch: Launch, extra: int) -> int:
    """Divisor with which torchtitan cuts the plan's number of stages: ceil((layers + extra) / this)."""
    stages = launch.degrees.pipeline * launch.degrees.virtual_pipeline
    return -(-(launch.layers + extra) // stages)


def _less_layers(launch: Launch) -> tuple[int, int] | None:
    """Layers that the first and the last stage are shorter by, so that torchtitan cuts the plan's stages.

    ``None`` where it would not: it cuts all stages between alike, the longer ones before the shorter.
    """
    counts = tuple(count for _, count in launch.configuration.chunks)
    most = max(counts) + 1
    for size in (most - 1, most):
        for first in {max(0, size - counts[0] + step) for step in (-1, 0, 1)}:
            for last in {max(0, size - counts[-1] + step) for step in (-1, 0, 1)}:
                each = _layers_per_stage(launch, first + last)
                as_many = -(-(launch.layers + first + last) // each) == len(counts)
                if as_many and split_layers(launch.layers, len(counts), first, last) == counts:
                    return first, last
    return None


def _modules(launch: Launch) -> tuple[tuple[str, ...], ...]:
    """The modules of every stage by name, in the order of the model."""
    counts = [count for _, count in launch.configuration.chunks]
    stages, start = [], 0
    for count in counts:
        stages.append([f"layers.{layer}" for layer in range(start, start + count)])
        start += count
    stages[0].insert(0, "tok_embeddings")
    stages[-1] += ["norm", _HEAD]
    if not all(stages):
        raise unsupported(
            "torchtitan",
            "stage_layers",
            launch.configuration.stage_layers,
            "a stage without layers has no module to be named by",
            "plan with a layer on each stage, or export megatron",
        )
    return tuple(map(tuple, stages))


def _word(value: Setting) -> str:
    """A setting on the command line: commas between the modules of a stage, blanks between stages."""
    return " ".join(map(",".join, value)) if isinstance(value, tuple) else str(value)


def _before(value: Setting) -> str:
    """A setting in the TOML of releases before 0.3, whose models call the output layer otherwise."""
    if not isinstance(value, tuple):
        return json.dumps(value)
    return json.dumps([[_HEAD_BEFORE if name == _HEAD else name for name in stage] for stage in value])


def _toml(about: list[str], settings: Settings, recompute: str) -> str:
    lines = [*about, "# For releases before 0.3."]
    for table, rows in (settings | {"activation_checkpoint": {"mode": recompute}}).items():
        lines += ["", f"[{table}]"]
        lines += [f"{name} = {_before(value)}" for name, value in rows.items()]
    return "\n".join(lines) + "\n"


EXPORTS_HERE: Final = (
    Export(
        "torchtitan",
        "torchtitan.zip",
        ZIP,
        "torchtitan arguments and TOML",
        render_torchtitan,
        read_torchtitan,
        TORCHTITAN_SAYS,
    ),
)
