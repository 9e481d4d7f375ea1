"""Read a list of arguments as Megatron-LM would, by the rules of its own argument parser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from app.exports.claims import Claims
from app.exports.context_exchanges import exchange_said
from app.exports.contract import Files, unreadable
from app.exports.offloading import percent_said
from app.exports.optimizer_states import FIELDS, states_said
from app.exports.readback.words import array, expert_order, file_named, flag_number, flags, numbers, same, value
from app.exports.recomputation import recomputation_said
from cluster_models.training.plan import RankOrder
from cluster_models.training.workload import Sharding

PLAN_SAYS: Final = frozenset(
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
"""Claims that a plan decides, or is made for."""
MEGATRON_SAYS: Final = PLAN_SAYS | {
    "hidden",
    "heads",
    "vocabulary",
    "positions",
    "active_experts",
    "expert_hidden",
    "recompute",
    "optimizer_states",
    "optimizer_offload",
    "offloaded_layers",
    "exchange",
    "connections",
    "micro_batch_group",
}
"""Claims of a plan, the widths of the model, and what it is started with."""
GROUP: Final = "--microbatch-group-size-per-virtual-pipeline-stage"
"""The micro-batches that pass a virtual stage together; as many as pipeline ranks unless it is given."""
_ENDS: Final = ("--decoder-first-pipeline-num-layers", "--decoder-last-pipeline-num-layers")
_RECOMPUTED: Final = ("granularity", "method", "num-layers")
_MOST: Final = 100_000
"""Repetitions of a letter that are still written out."""

Rows = tuple[tuple[int, ...], ...]
Given = Mapping[str, tuple[str, ...]]


def read_megatron(files: Files) -> Claims:
    """Claims of ``megatron_args.sh``."""
    text = file_named(files, "megatron_args.sh")
    return replace(claims_of_arguments(text), connections=connections_said(text))


def claims_of_arguments(text: str) -> Claims:
    """Claims of the array ``MEGATRON_ARGS`` of a script, and of its ``EXPERT_ORDER`` where it has one."""
    given = flags(array(text, "MEGATRON_ARGS"))
    tensor = flag_number(given, "--tensor-model-parallel-size")
    pipeline = flag_number(given, "--pipeline-model-parallel-size")
    blocks = _blocks(given)
    told = blocks is None or "--num-layers" in given
    layers = flag_number(given, "--num-layers") if told else len("".join(blocks or ()))
    stage_layers = _stage_layers(given, layers, pipeline)
    has_experts = "--num-experts" in given
    parameters = bool({"--use-megatron-fsdp", "--use-custom-fsdp"} & given.keys())
    claims = Claims(
        tensor=tensor,
        pipeline=pipeline,
        context=flag_number(given, "--context-parallel-size"),
        expert=flag_number(given, "--expert-model-parallel-size") if has_experts else 1,
        # Experts are cut as the other layers are where nothing else is said.
        expert_tensor=_number(given, "--expert-tensor-parallel-size", tensor) if has_experts else 1,
        virtual_pipeline=len(stage_layers),
        micro_batch_group=_number(given, GROUP, pipeline) if len(stage_layers) > 1 else 1,
        rank_order=RankOrder.PIPELINE_BEFORE_DATA
        if "--use-tp-pp-dp-mapping" in given
        else RankOrder.DATA_BEFORE_PIPELINE,
        layers=layers,
        stage_layers=stage_layers,
        micro_batch=flag_number(given, "--micro-batch-size"),
        global_batch=flag_number(given, "--global-batch-size"),
        sequence_length=flag_number(given, "--seq-length"),
        sharding=sharding_of(
            parameters=parameters,
            optimizer="--use-distributed-optimizer" in given,
        ),
        experts=flag_number(given, "--num-experts") if has_experts else None,
        expert_order=expert_order(text) if has_experts else None,
        head_gradient_limit=_number(given, "--wgrad-deferral-limit"),
        optimizer_states=states_said(
            _formats(given),
            offloaded="--optimizer-cpu-offload" in given,
            in_bf16="--bf16" in given and not {"--fp8-format", "--fp4-format"} & given.keys(),
            sharded_parameters=parameters,
        ),
        optimizer_offload=percent_said(
            "--optimizer-cpu-offload" in given, "".join(given.get("--optimizer-offload-fraction", ()))
        ),
        offloaded_layers=_number(given, "--cpu-offloading-num-layers", 0),
        exchange=exchange_said(
            " ".join(given.get("--cp-comm-type", ())),
            tuple(map(int, given.get("--hierarchical-context-parallel-sizes", ()))),
            flag_number(given, "--context-parallel-size"),
        ),
        optimizer_copies=_number(given, "--num-distributed-optimizer-instances"),
        recompute=recomputation_said(
            given.get("--recompute-modules", ()),
            *(" ".join(given.get(f"--recompute-{name}", ())) for name in _RECOMPUTED),
        ),
    )
    return replace(claims, **_model(given, layers), **(_experts(given, layers) if has_experts else {}))


def _formats(given: Given) -> tuple[str, ...]:
    """Formats of the optimizer's states, empty where all have FP32."""
    if "--use-precision-aware-optimizer" not in given:
        return ()
    return tuple(" ".join(given.get(f"--{name.replace('_', '-')}", ("fp32",))) for name in FIELDS)


def connections_said(text: str) -> int | None:
    """The number of hardware queues that a script or a manifest sets, everywhere the same."""
    found = re.findall(r"CUDA_DEVICE_MAX_CONNECTIONS(?:=|\n +value: )[\"']?(\d+)", text)
    return same(map(int, found), "CUDA_DEVICE_MAX_CONNECTIONS") if found else None


def _model(given: Given, layers: int) -> dict[str, Any]:
    """The figures of a model, but for its experts."""
    heads = flag_number(given, "--num-attention-heads")
    found: dict[str, Any] = {
        "hidden": flag_number(given, "--hidden-size"),
        "heads": heads,
        "kv_heads": _number(given, "--num-query-groups"),
        "head_size": _number(given, "--kv-channels"),
        "mlp_hidden": _number(given, "--ffn-hidden-size"),
        "vocabulary": flag_number(given, "--vocab-size"),
        "positions": flag_number(given, "--max-position-embeddings"),
        "prediction_layers": _number(given, "--mtp-num-layers"),
    }
    if ("--group-query-attention" in given) != ("--num-query-groups" in given):
        raise unreadable("exports.--num-query-groups", found["kv_heads"], "stands without its switch")
    if "--multi-latent-attention" in given:
        sizes = ("--kv-lora-rank", "--qk-head-dim", "--qk-pos-emb-head-dim", "--v-head-dim")
        found["latent_sizes"] = (
            _number(given, "--q-lora-rank", 0),
            *(flag_number(given, name) for name in sizes),
        )
    if (blocks := _blocks(given)) is not None:
        states = ("--mamba-head-dim", "--mamba-state-dim", "--mamba-num-groups")
        head, state, groups = (flag_number(given, name) for name in states)
        found["blocks"] = "".join(blocks)
        found["state_sizes"] = (
            _number(given, "--mamba-num-heads", 2 * found["hidden"] // max(head, 1)),
            *(head, state, groups),
        )
    variant = given.get("--experimental-attention-variant", ())
    if "gated_delta_net" in variant:
        names = ("num-key-heads", "num-value-heads", "key-head-dim", "value-head-dim", "conv-kernel-dim")
        found["linear_sizes"] = tuple(flag_number(given, f"--linear-{name}") for name in names)
        found["linear_pattern"] = pattern_of(value(given, "--linear-attention-freq"))
    if "dsa" in variant:
        found["indexer_sizes"] = tuple(
            flag_number(given, f"--dsa-indexer-{name}") for name in ("n-heads", "head-dim", "topk")
        )
    if "--window-size" in given:
        found["window"] = numbers(value(given, "--window-size"), "--window-size")
        skipped = "--window-attn-skip-freq"
        found["windowed_pattern"] = pattern_of(value(given, skipped)) if skipped in given else (True,) * layers
    return found


def _experts(given: Given, layers: int) -> dict[str, Any]:
    sparse = "--moe-layer-freq"
    found: dict[str, Any] = {
        "active_experts": flag_number(given, "--moe-router-topk"),
        "expert_hidden": _number(given, "--moe-ffn-hidden-size", _number(given, "--ffn-hidden-size")),
        "shared_hidden": _number(given, "--moe-shared-expert-intermediate-size", 0),
        "sparse_pattern": pattern_of(value(given, sparse)) if sparse in given else (True,) * layers,
        "expert_latent": _number(given, "--moe-latent-size", 0),
    }
    if (blocks := _blocks(given)) is not None:
        found["sparse_pattern"] = tuple(symbol == "E" for symbol in "".join(blocks))
    groups = ("--moe-router-num-groups", "--moe-router-group-topk")
    found["router_groups"] = tuple(_number(given, name, 1) for name in groups)
    return found


def pattern_of(text: str) -> tuple[bool, ...]:
    """The layers of a pattern such as ``([0]*3+[1]*58)``; refuses anything else."""
    runs = re.findall(r"\[([01])\]\*(\d+)", text)
    if not runs or text != "(" + "+".join(f"[{digit}]*{length}" for digit, length in runs) + ")":
        raise unreadable("exports.pattern", text, "is not a pattern of layers")
    return tuple(digit == "1" for digit, length in runs for _ in range(min(int(length), _MOST)))


def _number(given: Given, flag: str, other: int | None = None) -> Any:
    """The whole number of a flag, or ``other`` where the flag is not given."""
    return flag_number(given, flag) if flag in given else other


def sharding_of(*, parameters: bool, optimizer: bool) -> Sharding:
    """Sharding by Megatron's switches; sharded parameters need its sharded optimizer."""
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
        raise unreadable(
            "exports.layout", layout, f"its {len(stages)} stages are not a multiple of {pipeline} ranks"
        )
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


def _blocks(given: Given) -> list[str] | None:
    """Symbols of the blocks of a hybrid model, of each stage where they are told apart; ``None`` for others."""
    if "--hybrid-layer-pattern" in given:
        stages = value(given, "--hybrid-layer-pattern").split("|")
    elif "--hybrid-override-pattern" in given:
        stages = [value(given, "--hybrid-override-pattern")]
    else:
        return None
    if set("".join(stages)) - set("M*-E"):
        raise unreadable("exports.pattern", stages, "has symbols of no block")
    return stages


def _stage_layers(given: Given, layers: int, pipeline: int) -> Rows:
    if "--hybrid-layer-pattern" in given:
        counts = [len(stage) for stage in _blocks(given) or ()]
        if len(counts) % pipeline:
            raise unreadable("exports.pattern", counts, f"its stages are not a multiple of {pipeline} ranks")
        return tuple(tuple(counts[start : start + pipeline]) for start in range(0, len(counts), pipeline))
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
    virtual = _number(given, "--num-virtual-stages-per-pipeline-rank", 1)
    if any(flag in given for flag in _ENDS):
        return _rows_of_ends(given, layers, pipeline, virtual)
    embedding = "--account-for-embedding-in-pipeline-split" in given
    loss = "--account-for-loss-in-pipeline-split" in given
    whole = even_rows(layers + embedding + loss, pipeline, virtual)
    flat = [count for row in whole for count in row]
    flat[0] -= embedding
    flat[-1] -= loss
    return tuple(tuple(flat[start : start + pipeline]) for start in range(0, len(flat), pipeline))


def _rows_of_ends(given: Given, layers: int, pipeline: int, virtual: int) -> Rows:
    """The first and the last rank hold what they are told, those between share the rest; virtual stages alike."""
    first, last = (_number(given, flag) for flag in _ENDS)
    told = {rank: count for rank, count in ((0, first), (pipeline - 1, last)) if count is not None}
    rest, ranks = layers - sum(told.values()), pipeline - len(told)
    if not ranks or rest < 0 or rest % ranks:
        raise unreadable("exports.layers", rest, f"do not divide by the {ranks} ranks between the ends")
    held = [told.get(rank, rest // ranks) for rank in range(pipeline)]
    if not virtual or any(count % virtual or not count for count in held):
        raise unreadable("exports.layers", held, f"do not divide by {virtual} virtual stages")
    return (tuple(count // virtual for count in held),) * virtual


def _expanded(layout: str) -> str:
    """The layout without repetitions; groups do not nest in what we write."""
    for pattern in (r"([A-Za-z])\*(\d+)", r"\(([^()]*)\)\*(\d+)"):
        layout = re.sub(pattern, lambda match: match[1] * min(int(match[2]), _MOST), layout)
    return layout
