"""Rows of a table of measured training steps, read as runs that the cost model can price.

The columns are explained in the table's own README.  Settings that a row leaves open take the framework's default
and are named in ``TrainingRun.assumed``; what the planner cannot express raises ``Skipped`` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import gcd, lcm
from typing import Final, TypeVar

from benchmarks.published_clusters import Hardware, read_hardware, read_network
from benchmarks.published_frameworks import read_framework
from benchmarks.published_layouts import read_layout
from benchmarks.published_memory import (
    memory_is_known,
    memory_unit,
    read_counter,
    read_expert_tensor,
    read_measured_stage,
    read_modules,
    read_offloaded_layers,
    read_states,
)
from benchmarks.published_models import read_architecture
from benchmarks.published_recipes import with_recipe
from benchmarks.rows import Assumed, Row, Skipped, number, text, whole
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidInput
from cluster_models.training.adapters import Adapters
from cluster_models.training.frameworks import Framework
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.run_memory import predict_fits

T = TypeVar("T")

PRECISIONS: Final = (
    ("nvfp4", Precision.NVFP4),
    ("fp4", Precision.NVFP4),
    ("mxfp8", Precision.MXFP8),
    ("fp8mx", Precision.MXFP8),
    ("fp8", Precision.FP8),
    ("float8", Precision.FP8),
    ("bf16", Precision.BF16),
    ("bfloat16", Precision.BF16),
    ("fp16", Precision.FP16),
    ("float16", Precision.FP16),
    ("fp32", Precision.FP32),
    ("tf32", Precision.FP32),
)
"""By what the cell contains without dashes and underscores; the first that matches."""
DISTRIBUTED_OPTIMIZERS: Final = ("nemo", "megatron-bridge", "megatron-core")
"""Generations whose recipes shard the optimizer."""
FULLY_SHARDED: Final = ("llm-foundry", "torchtitan", "automodel", "maxtext", "kempnerforge")
"""Generations that run on PyTorch FSDP, or shard alike."""
USUAL_RECOMPUTE: Final = (
    ("torchtitan", "", Recompute.SELECTIVE),
    ("maxtext", "", Recompute.FULL),
    ("nemo-25.04", "deepseek", Recompute.SELECTIVE),
    ("automodel", "gpt-oss-120b", Recompute.NONE),
    ("automodel", "", Recompute.FULL),
)
"""What these frameworks recompute of models whose names start so, by default or in the recipes of their benchmarks:
MaxText keeps only queries, keys and values of 70B, NVIDIA's launch scripts and Automodel's
``examples/benchmark/configs`` say so."""
FULL_WITHOUT_OVERLAP: Final = re.compile(
    r"recompute (?:of the overlap-off runs not printed|(?:and VPP assumed from|as in) the DSV3)"
)
"""Runs whose script recomputes every layer unless dispatch is overlapped (awslabs' ``bench_dsv3_pretrain.py``)."""
USUAL_STAGES: Final = 2
"""Stages of a rank under an interleaved schedule: the least there can be, and torchtitan's default."""
SEQUENCES: Final = (("megatron-lm-2", 1024), ("internevo", 2048))
"""Sequence lengths of a framework's example scripts, where none is stated."""
USUAL_SEQUENCE: Final = 2048
LARGEST_MICRO_BATCH: Final = 16
FILLED_PIPELINE: Final = 5
"""Micro-batches for each pipeline stage that configurations of one framework leave at least (arXiv 2104.04473,
Table 1 keeps 6 to 9 of them)."""
LEAST_GPUS: Final = 64
ADAPTERS: Final = re.compile(r"LoRA rank (\d+) beside all linear layers")
MICRO_BATCHES: Final = re.compile(r"(?:micro_num|grad(?:ient)? accum(?:ulation)?) (\d+)|(\d+) micro-?batches")


def read_run(row: Row) -> TrainingRun:
    """The run of a row; raises ``Skipped``."""
    assumed = Assumed()
    try:
        return _run(row, assumed)
    except InvalidInput as error:
        raise Skipped(f"{error.field} {error.problem}") from error


def _run(row: Row, assumed: Assumed) -> TrainingRun:
    hardware = read_hardware(row, assumed)
    precision = _precision(row, hardware, assumed)
    framework = read_framework(row, assumed)
    if (recipe := with_recipe(row, framework.name, precision)) is not None:
        row, framework = recipe, read_framework(recipe, Assumed())
        assumed.take("settings", "those of the recipe", text(row, "recompute"))
    sequence = whole(row, "seq_len") or assumed.take(
        "sequence length", _by_name(SEQUENCES, framework, USUAL_SEQUENCE)
    )
    architecture = read_architecture(row, sequence, assumed)
    degrees = _degrees(row, framework, assumed)
    batch, micro_batch = _batch(row, degrees, framework, assumed)
    fewest = framework.fewest_micro_batches(degrees.pipeline)
    if micro_batch and batch < fewest * micro_batch * degrees.data:
        raise Skipped("fewer micro-batches than the pipeline takes")
    network = read_network(row, hardware, degrees.gpus, assumed)
    policy = _recompute(row, framework, assumed)
    sharding = _sharding(row, framework, assumed)
    memory = number(row, "mem_gb_per_gpu")
    run = TrainingRun(
        name=text(row, "id"),
        architecture=architecture,
        workload=TrainingWorkload(
            sequence_length=sequence,
            global_batch=batch,
            precision=precision,
            framework=framework,
            optimizer_states=read_states(row, framework, sharding, precision),
            memory_headroom=0.0,
            adapters=_adapters(row),
        ),
        configuration=Configuration(
            degrees=degrees,
            micro_batch=micro_batch or 1,
            recompute=policy,
            recompute_modules=read_modules(row) if policy is Recompute.SELECTIVE else frozenset(),
            sharding=sharding,
            rank_order=RankOrder.DATA_BEFORE_PIPELINE,
            stage_layers=read_layout(row, architecture, degrees, framework),
        ),
        gpu=hardware.gpu,
        gpus_per_node=hardware.gpus_per_node,
        gpus_per_domain=hardware.gpus_per_domain,
        network_bytes_per_s=network.gpu_bytes_per_s,
        flow_bytes_per_s=network.flow_bytes_per_s,
        fabric=network.fabric,
        network_measured=network.measured,
        groups=hardware.groups if sum(group.gpus for group in hardware.groups) >= degrees.gpus else (),
        step_s=_step_s(row, sequence, degrees),
        peak_memory_bytes=None if memory is None else memory * memory_unit(row),
        recompute_known=memory_is_known(row),
        memory_counter=read_counter(row),
        memory_stage=read_measured_stage(row),
        offloaded_layers=read_offloaded_layers(row),
    )
    if micro_batch is None:
        run = _with_micro_batch(run, assumed)
    return replace(run, assumed=tuple(assumed.notes))


def _by_name(choices: Sequence[tuple[str, T]], framework: Framework, otherwise: T) -> T:
    """The first choice with whose words the framework's name begins."""
    return next((choice for start, choice in choices if framework.name.startswith(start)), otherwise)


def _precision(row: Row, hardware: Hardware, assumed: Assumed) -> Precision:
    cell = re.sub(r"[-_ ]", "", text(row, "precision").casefold())
    found = next((precision for word, precision in PRECISIONS if word in cell), None)
    if cell and found is None:
        raise Skipped(f"precision {text(row, 'precision')}")
    precision = found or assumed.take("precision", Precision.BF16)
    for kind in (hardware.gpu, *(group.gpu for group in hardware.groups)):
        if precision not in kind.peak_flops:
            raise Skipped(f"{kind.name} has no peak for {precision}")
    return precision


def _degrees(row: Row, framework: Framework, assumed: Assumed) -> Degrees:
    tensor, pipeline, context = (
        whole(row, column) or assumed.take(f"{name} degree", 1)
        for column, name in (("tp", "tensor"), ("pp", "pipeline"), ("cp", "context"))
    )
    gpus, replica = whole(row, "num_gpus"), tensor * pipeline * context
    experts, expert = whole(row, "experts") or 1, whole(row, "ep")
    if gpus is None and (data := whole(row, "dp")):
        gpus = replica * data
    cut = read_expert_tensor(row, framework)
    if gpus and (expert or 1) > 1 and gpus == replica * (whole(row, "dp") or 0) * (expert or 1):
        raise Skipped("expert ranks work on the same tokens")
    if gpus is None:
        least = pipeline * lcm((expert or 1) * cut, tensor * context)
        gpus = assumed.take("GPUs", least * max(1, -(-_usual_gpus(row) // least)))
    if gpus % replica:
        data = whole(row, "dp") or max(gpus // replica, 1)
        gpus = assumed.take("GPUs", replica * data, "degrees do not divide the stated number")
    ranks = gpus // pipeline
    if expert is None:
        expert = gcd(experts, ranks // cut)
        if experts > 1:
            assumed.take("expert degree", expert, "as many ranks as share out the experts")
    if ranks % expert:
        expert = assumed.take("expert degree", gcd(expert, ranks), "the stated one does not divide a stage")
    if ranks % (expert * cut):
        cut = assumed.take("expert tensor degree", gcd(cut, ranks // expert), "it does not divide a stage")
    return Degrees(
        tensor=tensor,
        pipeline=pipeline,
        data=gpus // replica,
        context=context,
        expert=expert,
        virtual_pipeline=_virtual_pipeline(row, assumed) if pipeline > 1 else 1,
        expert_tensor=cut,
    )


def _usual_gpus(row: Row) -> int:
    """GPUs of a test whose size is not stated: eight nodes, or as few as there can be where it did not fit."""
    return 1 if "not fit" in text(row, "notes") else LEAST_GPUS


def _batch(row: Row, degrees: Degrees, framework: Framework, assumed: Assumed) -> tuple[int, int | None]:
    """Global batch and micro-batch in sequences; no micro-batch where memory has to tell."""
    batch, micro = whole(row, "global_batch"), whole(row, "micro_batch")
    if batch is None:
        micro = micro or assumed.take("micro-batch", 1)
        stated = MICRO_BATCHES.search(text(row, "notes"))
        count = int(stated[1] or stated[2]) if stated else 4 * degrees.pipeline
        batch = assumed.take("global batch", micro * degrees.data * count, f"{count} micro-batches")
    if batch < degrees.data * (micro or 1):
        batch = assumed.take("global batch", degrees.data * (micro or 1), "less than a micro-batch per data rank")
    if micro is None and framework.name.startswith("torchtitan") and degrees.pipeline > 1:
        micro = max(batch // (degrees.data * degrees.pipeline), 1)
        assumed.take("micro-batch", micro, "as many micro-batches as stages, torchtitan's default")
    return batch, micro


def _with_micro_batch(run: TrainingRun, assumed: Assumed) -> TrainingRun:
    """The largest power of two that divides a data rank's sequences, fills the pipeline and fits the memory."""
    degrees = run.configuration.degrees
    sequences = run.workload.global_batch // degrees.data
    best, size = run, 2
    while size <= LARGEST_MICRO_BATCH and sequences % size == 0:
        if degrees.pipeline > 1 and sequences // size < FILLED_PIPELINE * degrees.pipeline:
            break
        larger = replace(run, configuration=replace(run.configuration, micro_batch=size))
        if not predict_fits(larger):
            break
        best, size = larger, 2 * size
    assumed.take("micro-batch", best.configuration.micro_batch, "the largest that fits and fills the pipeline")
    return best


def _virtual_pipeline(row: Row, assumed: Assumed) -> int:
    if (stated := whole(row, "vpp")) is not None:
        return stated
    if "interleaved" in text(row, "notes").casefold():
        return assumed.take("virtual stages", USUAL_STAGES, "interleaved, how far is not stated")
    return assumed.take("virtual stages", 1)


def _recompute(row: Row, framework: Framework, assumed: Assumed) -> Recompute:
    cell = text(row, "recompute").casefold()
    if not cell and FULL_WITHOUT_OVERLAP.search(text(row, "notes")):
        return Recompute.FULL
    if not cell:
        model = text(row, "model_name").casefold()
        usual = [(start, policy) for start, of, policy in USUAL_RECOMPUTE if model.startswith(of)]
        return assumed.take("recomputation", _by_name(usual, framework, Recompute.NONE), "not stated")
    if cell.startswith("full"):
        return Recompute.FULL
    return Recompute.SELECTIVE if cell.startswith("selective") else Recompute.NONE


def _sharding(row: Row, framework: Framework, assumed: Assumed) -> Sharding:
    """ZeRO-2 shards gradients in place of their sum: the same traffic as ZeRO-1, a little less memory."""
    cell = text(row, "zero").casefold()
    if cell in ("0", "none", "ddp"):
        return Sharding.NONE
    if cell.startswith(("3", "fsdp", "hsdp", "zero3", "zero-3")):
        return Sharding.PARAMETERS
    if cell:
        return Sharding.OPTIMIZER
    if framework.name.startswith(FULLY_SHARDED):
        return assumed.take("sharding", Sharding.PARAMETERS, "the framework's default")
    if framework.name.startswith(DISTRIBUTED_OPTIMIZERS):
        return assumed.take("sharding", Sharding.OPTIMIZER, "the framework's default")
    return assumed.take("sharding", Sharding.NONE, "the framework's default")


def _adapters(row: Row) -> Adapters | None:
    stated = ADAPTERS.search(text(row, "notes"))
    return None if stated is None else Adapters(int(stated[1]))


def _step_s(row: Row, sequence: int, degrees: Degrees) -> float | None:
    """The measured step: seconds, or from tokens per second and GPU."""
    if (seconds := number(row, "iter_time_s")) is not None:
        return seconds
    rate, batch = number(row, "tokens_per_s_per_gpu"), whole(row, "global_batch")
    if not rate or batch is None:
        return None
    return float(sequence) * batch / (rate * degrees.gpus)
