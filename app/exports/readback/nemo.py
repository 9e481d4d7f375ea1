"""What Megatron-Bridge would make of a list of dotted overrides."""

from __future__ import annotations

from typing import Final

from app.exports.contract import Claims, Files, unreadable
from app.exports.readback.megatron import MEGATRON_SAYS, even_rows, rows_of_layout, sharding_of
from app.exports.readback.words import array, expert_order, file_named, setting_number
from cluster_models.plan import RankOrder

NEMO_SAYS: Final = MEGATRON_SAYS


def read_nemo(files: Files) -> Claims:
    """What ``nemo_overrides.sh`` says."""
    text = file_named(files, "nemo_overrides.sh")
    given: dict[str, str] = {}
    for word in array(text, "NEMO_OVERRIDES"):
        name, equals, value = word.partition("=")
        if not equals or name in given:
            raise unreadable("exports.NEMO_OVERRIDES", word, "is no override, or is given twice")
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
    )
