"""Read an experiment file as Primus would: settings laid over its presets become arguments of Megatron-LM."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any, Final

import yaml

from app.exports.claims import Claims
from app.exports.contract import Files, unreadable
from app.exports.readback.megatron import MEGATRON_SAYS, claims_of_arguments
from app.exports.readback.words import file_named
from app.exports.readback.yaml_files import at, refusing

PRIMUS_FILE: Final = "primus.yaml"
PRIMUS_SAYS: Final = MEGATRON_SAYS - {"expert_order", "connections"}
"""The order of experts is the checkpoint's; the launcher of Primus sets the hardware queues itself."""
_ARGUMENTS: Final = {
    "fp8": "--fp8-format",
    "fp4": "--fp4-format",
    "microbatch_group_size_per_vp_stage": "--microbatch-group-size-per-virtual-pipeline-stage",
}


_ENDED: Final = ("gradient_accumulation_fusion",)
"""Switches that are on unless an argument ends them."""


@refusing
def read_primus(files: Files) -> Claims:
    """Claims of ``primus.yaml``."""
    document = yaml.safe_load(file_named(files, PRIMUS_FILE))
    module = at(document, "modules.pre_trainer")
    presets = tuple(at(module, name) for name in ("framework", "config", "model"))
    if presets != ("megatron", "pre_trainer.yaml", "language_model.yaml"):
        raise unreadable("exports.primus.presets", presets, "are others than the settings are laid over")
    words = [word for name, value in at(module, "overrides").items() for word in _words(name, value)]
    return replace(claims_of_arguments(f"MEGATRON_ARGS=({shlex.join(words)})"), expert_order=None)


def _words(name: str, value: Any) -> list[str]:
    """The argument that leaves a setting with this value, and its values; nothing for a switch that is off."""
    flag = _ARGUMENTS.get(name, "--" + name.replace("_", "-"))
    if isinstance(value, bool):
        return [flag] * value or ["--no-" + flag.removeprefix("--")] * (name in _ENDED)
    return [flag, *map(str, value if isinstance(value, list) else [value])]
