"""Read a list of dotted overrides as Megatron-Bridge would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.exports.claims import Claims
from app.exports.context_exchanges import KIND, SIZES, exchange_said
from app.exports.contract import Files, unreadable
from app.exports.offloading import LAYERS, SHARE, SWITCH, percent_said
from app.exports.optimizer_states import FIELDS, states_said
from app.exports.readback.megatron import (
    MEGATRON_SAYS,
    connections_said,
    even_rows,
    rows_of_layout,
    sharding_of,
)
from app.exports.readback.words import array, expert_order, file_named, setting_number
from app.exports.recomputation import recomputation_said
from cluster_models.training.plan import RankOrder

GROUP: Final = "model.microbatch_group_size_per_vp_stage"
_RECOMPUTED: Final = ("granularity", "method", "num_layers")
NEMO_SAYS: Final = MEGATRON_SAYS - {"positions"} | {"adapters"}


def read_nemo(files: Files) -> Claims:
    """Claims of ``nemo_overrides.sh``."""
    text = file_named(files, "nemo_overrides.sh")
    given: dict[str, str] = {}
    for word in array(text, "NEMO_OVERRIDES"):
        name, equals, value = word.partition("=")
        if not equals or name in given:
            raise unreadable("exports.NEMO_OVERRIDES", word, "is not an override, or is given twice")
        given[name] = value.strip("'")
    pipeline, layers = (
        setting_number(given, "model.pipeline_model_parallel_size"),
        setting_number(given, "model.num_layers"),
    )
    virtual = int(given.get("model.virtual_pipeline_model_parallel_size", "1"))
    layout = given.get("model.pipeline_model_parallel_layout")
    rows = rows_of_layout(layout, pipeline) if layout else even_rows(layers, pipeline, virtual)
    if sum(map(sum, rows)) != layers or len(rows) != virtual:
        raise unreadable(
            "exports.model.pipeline_model_parallel_layout", layout, f"is not {virtual} x {layers} layers"
        )
    experts = setting_number(given, "model.num_moe_experts") if "model.num_moe_experts" in given else None
    expert = setting_number(given, "model.expert_model_parallel_size") if experts else 1
    expert_tensor = setting_number(given, "model.expert_tensor_parallel_size") if experts else 1
    return Claims(
        tensor=setting_number(given, "model.tensor_model_parallel_size"),
        pipeline=pipeline,
        context=setting_number(given, "model.context_parallel_size"),
        expert=expert,
        expert_tensor=expert_tensor,
        virtual_pipeline=virtual,
        micro_batch_group=int(given.get(GROUP, pipeline)) if virtual > 1 else 1,
        rank_order=RankOrder.PIPELINE_BEFORE_DATA
        if given.get("dist.use_tp_pp_dp_mapping") == "true"
        else RankOrder.DATA_BEFORE_PIPELINE,
        layers=layers,
        stage_layers=rows,
        micro_batch=setting_number(given, "train.micro_batch_size"),
        global_batch=setting_number(given, "train.global_batch_size"),
        sequence_length=setting_number(given, "model.seq_length"),
        sharding=sharding_of(
            parameters=given.get("ddp.use_megatron_fsdp") == "true",
            optimizer=given.get("ddp.use_distributed_optimizer") == "true",
        ),
        experts=experts,
        expert_order=expert_order(text) if experts else None,
        hidden=setting_number(given, "model.hidden_size"),
        heads=setting_number(given, "model.num_attention_heads"),
        vocabulary=setting_number(given, "model.vocab_size"),
        kv_heads=_number(given, "model.num_query_groups"),
        head_size=_number(given, "model.kv_channels"),
        mlp_hidden=_number(given, "model.ffn_hidden_size"),
        active_experts=_number(given, "model.moe_router_topk"),
        expert_hidden=_number(given, "model.moe_ffn_hidden_size"),
        shared_hidden=_number(given, "model.moe_shared_expert_intermediate_size"),
        head_gradient_limit=_number(given, "comm_overlap.wgrad_deferral_limit"),
        optimizer_copies=_number(given, "ddp.num_distributed_optimizer_instances"),
        optimizer_states=states_said(
            tuple(_text(given, f"optimizer.{name}") for name in FIELDS)
            if given.get("optimizer.use_precision_aware_optimizer") == "true"
            else (),
            offloaded=given.get(f"optimizer.{SWITCH}") == "true",
            in_bf16=given.get("mixed_precision") == "bf16_mixed",
            sharded_parameters=given.get("ddp.use_megatron_fsdp") == "true",
        ),
        optimizer_offload=percent_said(
            given.get(f"optimizer.{SWITCH}") == "true", _text(given, f"optimizer.{SHARE}")
        ),
        offloaded_layers=_number(given, f"model.{LAYERS}") or 0,
        exchange=exchange_said(
            _text(given, f"model.{KIND}"),
            tuple(int(size) for size in _text(given, f"model.{SIZES}").strip("[]").split(",") if size),
            setting_number(given, "model.context_parallel_size"),
        ),
        adapters=_adapters(given),
        connections=connections_said(text),
        recompute=recomputation_said(
            [name for name in _text(given, "model.recompute_modules").strip("[]").split(",") if name],
            *(_text(given, f"model.recompute_{name}") for name in _RECOMPUTED),
        ),
    )


def _adapters(given: Mapping[str, str]) -> str:
    """Rank and modules of adapters, by the last names of their patterns."""
    patterns = [name for name in _text(given, "peft.target_modules").strip("[]").split(",") if name]
    modules = sorted({pattern.rpartition(".")[2] for pattern in patterns})
    return f"{given['peft.dim']} {','.join(modules)}" if modules else ""


def _number(given: Mapping[str, str], name: str) -> int | None:
    """The whole number of a setting, if it is given."""
    return setting_number(given, name) if name in given else None


def _text(given: Mapping[str, str], name: str) -> str:
    """A setting, empty where it is not given or null."""
    return given.get(name, "").replace("null", "")
