"""Configuration of a plan for Primus, AMD's launcher of Megatron-LM: one experiment file that ``primus-cli`` takes.

Primus sets arguments of Megatron-LM by the names under which its parser keeps them, and ignores names that it does
not know (``primus/backends/megatron/argument_builder.py``).  Its presets differ from Megatron's defaults, so that
switches are said both ways.  Read at v26.5.1, whose Megatron-LM is 0.16.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import yaml

from app.exports.contract import YAML, Export, ExportFile, Files, unsupported
from app.exports.launch_value import Launch
from app.exports.megatron import megatron_arguments
from app.exports.options import Options
from app.exports.power import cap_remarks
from app.exports.readback.primus import PRIMUS_FILE, PRIMUS_SAYS, read_primus
from cluster_models.training.framework_choices import ExpertDispatch

RELEASE: Final = 16
"""The release of Megatron-Core that Primus holds."""
PRESETS: Final[Mapping[str, str | bool]] = {
    "bf16": False,
    "swiglu": False,
    "add_bias_linear": True,
    "add_position_embedding": True,
    "untie_embeddings_and_output_weights": False,
    "group_query_attention": False,
    "sequence_parallel": False,
    "overlap_grad_reduce": False,
    "overlap_param_gather": False,
    "use_distributed_optimizer": False,
    "gradient_accumulation_fusion": True,
    "cross_entropy_loss_fusion": False,
    "grad_reduce_in_bf16": False,
}
"""Values of Megatron-LM without an argument where the presets of Primus or its examples have another."""
KEPT_AS: Final = {
    "fp8_format": "fp8",
    "fp4_format": "fp4",
    "disable_bias_linear": "no_add_bias_linear",
    "microbatch_group_size_per_virtual_pipeline_stage": "microbatch_group_size_per_vp_stage",
}
"""Names under which Megatron's parser keeps arguments, where they are others; behind ``no_`` what a switch ends."""
LISTS: Final = ("recompute_modules", "cp_comm_type", "hierarchical_context_parallel_sizes", "cuda_graph_scope")
"""Arguments that take several values."""


def primus_overrides(launch: Launch) -> dict[str, Any]:
    """Settings of the trainer; raises ``InvalidConfiguration`` where Primus has none for what the plan does."""
    framework, model = launch.workload.framework, launch.architecture
    if model.sliding_window is not None or model.attention_sinks:
        raise unsupported("primus", "model", model.name, "it takes windows and sinks from its own models alone")
    if model.parts:
        parts = ", ".join(sorted(model.parts)).replace("_", " ")
        raise unsupported("primus", "model", model.name, f"it has {parts} from its own models alone")
    settings: dict[str, Any] = dict(PRESETS)
    for flag in megatron_arguments(_on_its_release(launch)).flags:
        name, *values = shlex.split(flag)
        key = name.removeprefix("--").replace("-", "_")
        key = KEPT_AS.get(key, key)
        said = [_value(text) for text in values]
        if key.startswith("no_"):
            settings[key.removeprefix("no_")] = False
        elif not said:
            settings[key] = True
        else:
            settings[key] = said if key in LISTS else said[0]
    settings["gradient_accumulation_fusion"] &= framework.fused_accumulation
    if model.experts is not None and framework.expert_dispatch is not ExpertDispatch.ALL_TO_ALL:
        if framework.expert_dispatch is not ExpertDispatch.DEEPEP:
            value = str(framework.expert_dispatch)
            raise unsupported("primus", "framework.expert_dispatch", value, "it has all_to_all and deepep")
        del settings["moe_flex_dispatcher_backend"]
        settings |= {"moe_enable_deepep": True, "enable_primus_turbo": True, "use_turbo_deepep": True}
    return settings


def render_primus(launch: Launch) -> str:
    """The experiment file."""
    module = {
        "framework": "megatron",
        "config": "pre_trainer.yaml",
        "model": "language_model.yaml",
        "overrides": primus_overrides(launch),
    }
    document = {
        "work_group": "meshwright",
        "user_name": "meshwright",
        "exp_name": "meshwright",
        "workspace": "./output",
        "modules": {"pre_trainer": module},
    }
    lines = [
        "# Meshwright: for Primus v26.5, started on the hosts of the plan in their order:",
        f"# runner/primus-cli slurm srun -N {len(launch.hosts)} -- train pretrain --config {PRIMUS_FILE}",
        "# Add data, tokenizer, learning rate, the base of the rotation, and the kernels of Primus-Turbo.",
    ]
    lines += [f"# {remark}" for remark in cap_remarks(launch)]
    generation = launch.workload.framework.generation
    if not generation.startswith("primus"):
        lines.append(f"# Priced as {generation}: under Primus a step takes another time.")
    return "\n".join([*lines, yaml.safe_dump(document, sort_keys=False, width=10**6)])


def _value(text: str) -> int | float | str:
    """A value as YAML must have it: Primus takes numbers as they come."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _on_its_release(launch: Launch) -> Launch:
    """The launch under the release of Megatron-Core that Primus holds."""
    framework = replace(launch.workload.framework, megatron_core=RELEASE)
    return Launch(replace(launch.plan, workload=replace(launch.workload, framework=framework)))


def _files(launch: Launch, options: Options) -> Files:  # noqa: ARG001 - the shape of every renderer
    return (ExportFile(PRIMUS_FILE, render_primus(launch)),)


EXPORTS_HERE: Final = (
    Export(
        "primus",
        PRIMUS_FILE,
        YAML,
        "Primus (AMD) experiment file with Megatron-LM's settings",
        _files,
        read_primus,
        PRIMUS_SAYS,
    ),
)
