"""Rows of a table of measured training steps, read as configurations that the cost model can price.

The columns are explained in the table's own README; what a row leaves open takes the framework's default, and
what the planner cannot express raises ``Skipped`` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from cluster_models.architecture import Architecture, Experts, LatentAttention
from cluster_models.catalogue import gpu_kind
from cluster_models.frameworks import DEFAULT_FRAMEWORK, CudaGraphs, ExpertDispatch, Framework, framework
from cluster_models.gpus import Precision
from cluster_models.plan import Configuration, Degrees, RankOrder
from cluster_models.training_run import TrainingRun
from cluster_models.units import GBIT
from cluster_models.workload import Recompute, Sharding, TrainingWorkload
from solver.degrees.layout import Layout

Row = Mapping[str, str]

GPU_NAMES: Final = {
    "H100": "H100-SXM5-80GB",
    "H200": "H200-SXM-141GB",
    "A100-80": "A100-SXM4-80GB",
    "A800-80": "A100-SXM4-80GB",
    "A100-40": "A100-SXM4-40GB",
    "V100-32": "V100-SXM2-32GB",
    "V100-16": "V100-SXM2-16GB",
    "T4-16": "T4",
    "GH200-96": "GH200-96GB",
    "B200": "B200-SXM-180GB",
    "B300": "B300-SXM-288GB",
    "GB200": "GB200",
    "GB300": "GB300",
}
DOMAIN_GPUS: Final = {"GB200": 72, "GB300": 72}
PRECISIONS: Final = {
    "bf16": Precision.BF16,
    "fp16": Precision.FP16,
    "fp8": Precision.FP8,
    "mxfp8": Precision.MXFP8,
    "nvfp4": Precision.NVFP4,
}
SHARDINGS: Final = {
    "": Sharding.NONE,
    "0": Sharding.NONE,
    "1": Sharding.OPTIMIZER,
    "2": Sharding.OPTIMIZER,  # gradients in place of their sum: the same traffic, a little less memory
    "3": Sharding.PARAMETERS,
    "fsdp": Sharding.PARAMETERS,
}
HEAD_SIZES: Final = {"qwen3": 128, "gpt-oss": 64, "llama4": 128}
"""Head sizes that are not hidden width over heads (the models' own config.json)."""
MLA: Final = LatentAttention(
    query_rank=1536, key_value_rank=512, rope_head_size=64, nope_head_size=128, value_head_size=128
)
"""DeepSeek-V3 (arXiv 2412.19437, section 4.2); Kimi K2 keeps these figures."""
GENERATIONS: Final = (
    (r"AMP", "deepspeed-0.3"),
    (r"2104\.04473|Jan 2021|tables\.tex|alpa|Megatron-Turing|experiments/gpt2", "megatron-lm-2"),
    (r"2205\.05198|Korthikanti", "megatron-lm-3"),
    (r"bigscience|vTrain", "megatron-deepspeed-2022"),
    (r"mosaicml|llm-foundry", "llm-foundry-2023"),
    (r"InternEvo", "internevo-2024"),
    (r"Automodel", "automodel-2025"),
    (r"torchtitan.*2024", "torchtitan-2024"),
    (r"torchtitan", "torchtitan-2025"),
    (r"maxtext", "maxtext-2025"),
    (r"Bridge.*25\.09", "megatron-bridge-25.09"),
    (r"Bridge.*25\.1", "megatron-bridge-25.11"),
    (r"Bridge.*26\.0[23]", "megatron-bridge-26.02"),
    (r"Bridge.*26\.0[45]", "megatron-bridge-26.04"),
    (r"Bridge", "megatron-bridge-26.06"),
    (r"training_results_v(3\.|2\.)|23\.\d\d", "nemo-23.09"),
    (r"training_results_v4\.0|24\.0[3-8]", "nemo-24.07"),
    (r"training_results_v4\.1|24\.(09|1\d)", "nemo-24.09"),
    (r"training_results_v5|v25\.0[5-9]|25\.0[4-8]", "nemo-25.04"),
    (r"dgxc|NeMo", "nemo-25.02"),
    (r"r0\.8", "megatron-core-0.8"),
)
"""Framework generation by a pattern found in the row's source, first match first."""
DISPATCHES: Final = (("hybridep", ExpertDispatch.HYBRIDEP), ("deepep", ExpertDispatch.DEEPEP))
ASSUMED_GBIT_PER_GPU: Final = {"H100": 400.0, "H200": 400.0, "A100-80": 200.0, "B200": 400.0}
"""Usual network of the kind's reference system, for rows that do not state theirs."""


class Skipped(Exception):
    """The row cannot be priced; the message is the reason that the report counts."""


def read_run(row: Row) -> TrainingRun:
    """The run of a row; raises ``Skipped``."""
    if row["gpu"] not in GPU_NAMES:
        raise Skipped("GPU mix or kind without a data sheet")
    if row["precision"] not in PRECISIONS:
        raise Skipped(f"precision {row['precision']}")
    if not row["micro_batch"] or not row["seq_len"] or not row["global_batch"]:
        raise Skipped("micro-batch, sequence or global batch not stated")
    if row["etp"] not in ("", "1"):
        raise Skipped("expert tensor parallelism")
    architecture = _architecture(row)
    configuration = _configuration(row, architecture)
    sequences = int(row["global_batch"])
    if sequences < configuration.micro_batch * configuration.degrees.data:
        raise Skipped("batch smaller than one micro-batch per data rank")
    node = int(row["gpus_per_node"] or 8)
    return TrainingRun(
        name=row["id"],
        architecture=architecture,
        workload=TrainingWorkload(
            sequence_length=int(row["seq_len"]),
            global_batch=sequences,
            precision=PRECISIONS[row["precision"]],
            framework=_framework(row),
            memory_headroom=0.0,
        ),
        configuration=configuration,
        gpu=gpu_kind(GPU_NAMES[row["gpu"]]),
        gpus_per_node=node,
        gpus_per_domain=DOMAIN_GPUS.get(row["gpu"], node),
        network_bytes_per_s=_network(row, node),
        step_s=_step_s(row),
        peak_memory_bytes=_number(row, "mem_gb_per_gpu", scale=2.0**30),
        recompute_known=row["recompute"] in ("none", "full", "selective:core_attn"),
    )


def _framework(row: Row) -> Framework:
    """The generation that the source names, with what the row says of its settings."""
    name = next((name for pattern, name in GENERATIONS if re.search(pattern, row["source"])), None)
    found = DEFAULT_FRAMEWORK if name is None else framework(name)
    notes = row["notes"].lower()
    if row["sequence_parallel"]:
        found = replace(found, sequence_parallel=row["sequence_parallel"] != "0")
    if dispatch := next((dispatch for word, dispatch in DISPATCHES if word in notes), None):
        found = replace(found, expert_dispatch=dispatch)
    if "cuda graphs" in notes:
        graphs = CudaGraphs.FULL if "full_iteration" in notes else CudaGraphs.PARTIAL
        found = replace(found, cuda_graphs=graphs)
    return replace(found, expert_overlap=found.expert_overlap or "a2a overlap" in notes)


def _stage_layers(row: Row, architecture: Architecture, degrees: Degrees) -> Layout:
    """Layers as the notes print them (entries: 2 before the layers, 4 after), else spread."""
    printed = re.search(r"layer partition boundaries ([\d-]+) over", row["notes"])
    if printed is None:
        return spread_layers(architecture.layers, degrees.pipeline, degrees.virtual_pipeline)
    ends = np.clip(np.array([int(end) for end in printed[1].split("-")]) - 2, 0, architecture.layers)
    return (tuple(int(count) for count in np.diff(ends)),)


def spread_layers(layers: int, pipeline: int, virtual: int) -> Layout:
    """Equal shares, short first and last chunks where they do not divide.

    Where layers plus two divide, embedding and head count as a layer each, as NVIDIA's recipes do.
    """
    chunks = pipeline * virtual
    if layers % chunks and (layers + 2) % chunks == 0 and chunks > 1:
        counts = [(layers + 2) // chunks] * chunks
        counts[0] -= 1
        counts[-1] -= 1
    else:
        counts = [layers // chunks] * chunks
        for chunk in range(1, 1 + layers % chunks):
            counts[chunk] += 1
        counts[0] += layers - sum(counts)
    return tuple(tuple(counts[v * pipeline : (v + 1) * pipeline]) for v in range(virtual))


def _architecture(row: Row) -> Architecture:
    layers, hidden, name = int(row["layers"]), int(row["hidden"]), row["model_name"]
    heads = int(row["heads"]) if row["heads"] else _usual_heads(hidden)
    vocabulary = row["vocab"] or ("128256" if name.startswith("llama3") else "51200")
    gated = row["gated_mlp"] == "1"
    head_size = next((size for prefix, size in HEAD_SIZES.items() if name.startswith(prefix)), hidden // heads)
    window = 128 if name.startswith("gpt-oss") else None
    return Architecture(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=int(row["kv_heads"] or heads),
        head_size=head_size,
        mlp_hidden=int(row["ffn_hidden"] or (0 if row["experts"] else 4 * hidden)),
        vocabulary=int(vocabulary),
        gated_mlp=gated,
        tied_embeddings=not gated and not row["experts"],
        learned_positions=0 if gated or row["experts"] or name.startswith("mpt") else int(row["seq_len"]),
        sliding_window=window,
        window_period=2 if window else 1,
        latent_attention=MLA if name.startswith(("deepseek-v3", "kimi")) else None,
        experts=_experts(row, layers),
    )


def _experts(row: Row, layers: int) -> Experts | None:
    if not row["experts"]:
        return None
    if not row["moe_ffn_hidden"]:
        raise Skipped("expert width not stated")
    sparse = int(row["moe_layers"] or layers)
    alternate = sparse * 2 == layers
    return Experts(
        count=int(row["experts"]),
        active=int(row["topk"]),
        hidden=int(row["moe_ffn_hidden"]),
        shared_hidden=int(row["shared_expert_ffn"] or 0),
        dense_layers=1 if alternate else layers - sparse,
        layer_period=2 if alternate else 1,
    )


def _usual_heads(hidden: int) -> int:
    """The divisor of ``hidden`` that makes heads closest to 128 wide."""
    return min((n for n in range(1, hidden + 1) if hidden % n == 0), key=lambda n: abs(hidden / n - 128))


def _configuration(row: Row, architecture: Architecture) -> Configuration:
    tensor, pipeline = int(row["tp"] or 1), int(row["pp"] or 1)
    context, expert = int(row["cp"] or 1), int(row["ep"] or 1)
    gpus = int(row["num_gpus"]) if row["num_gpus"] else 0
    if not gpus:
        raise Skipped("number of GPUs not stated")
    if gpus % (tensor * pipeline * context):
        raise Skipped("degrees do not divide the GPUs")
    if row["experts"] and not row["ep"]:
        raise Skipped("expert degree not stated")
    data = gpus // (tensor * pipeline * context)
    if (tensor * context * data) % expert:
        raise Skipped("expert degree does not divide a stage")
    recompute = Recompute.NONE
    if row["recompute"].startswith("full"):
        recompute = Recompute.FULL
    elif row["recompute"] in ("selective", "selective:core_attn"):
        recompute = Recompute.SELECTIVE
    degrees = Degrees(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        context=context,
        expert=expert,
        virtual_pipeline=int(row["vpp"] or 1) if pipeline > 1 else 1,
    )
    return Configuration(
        degrees=degrees,
        micro_batch=int(row["micro_batch"]),
        recompute=recompute,
        sharding=SHARDINGS.get(row["zero"], Sharding.OPTIMIZER),
        rank_order=RankOrder.DATA_BEFORE_PIPELINE,
        stage_layers=_stage_layers(row, architecture, degrees),
    )


def _network(row: Row, node: int) -> float:
    text = row["interconnect"]
    if found := re.search(r"([\d.]+) Gb/s/GPU", text) or re.search(r"([\d.]+) Gb/s per GPU", text):
        return float(found[1]) * GBIT
    if found := re.search(r"([\d.]+) Gb/s node-to-node", text):
        return float(found[1]) * GBIT / node
    if "HDR" in text or row["gpu"] in ASSUMED_GBIT_PER_GPU:
        return ASSUMED_GBIT_PER_GPU.get(row["gpu"], 200.0) * GBIT
    if int(row["num_gpus"] or 1) <= DOMAIN_GPUS.get(row["gpu"], node):
        return 25 * GBIT
    raise Skipped("network between nodes not stated")


def _step_s(row: Row) -> float | None:
    if (seconds := _number(row, "iter_time_s")) is not None:
        return seconds
    rate = _number(row, "tokens_per_s_per_gpu")
    if rate is None or not row["num_gpus"]:
        return None
    return float(row["seq_len"]) * float(row["global_batch"]) / (rate * float(row["num_gpus"]))


def _number(row: Row, column: str, *, scale: float = 1.0) -> float | None:
    return float(row[column]) * scale if row.get(column) else None
