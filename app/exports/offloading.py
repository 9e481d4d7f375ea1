"""Offloaded optimizer states in the words of Megatron-Core's ``OptimizerConfig``, for arguments and overrides."""

from __future__ import annotations

from typing import Final

from app.exports.contract import unsupported
from app.exports.launch_value import Launch
from cluster_models.training.workload import WHOLE_OFFLOAD

SWITCH: Final = "optimizer_cpu_offload"
SHARE: Final = "optimizer_offload_fraction"
LAYERS: Final = "cpu_offloading_num_layers"
OVERLAP: Final = "overlap_cpu_optimizer_d2h_h2d"


def offload_settings(launch: Launch) -> dict[str, str]:
    """Settings of the optimizer by name, switches empty; none where nothing is offloaded."""
    percent = launch.configuration.optimizer_offload
    return {SWITCH: "", SHARE: f"{percent / WHOLE_OFFLOAD:g}", OVERLAP: ""} if percent else {}


def refuse_offload(
    target: str, launch: Launch, *, takes: bool = False, stage_three: bool = False, remedy: str = "export megatron"
) -> None:
    """Raise ``InvalidConfiguration`` where a plan offloads states and a target cannot.

    ``takes``: all or none, ``stage_three``: also to disks, and with parameters.
    """
    percent = launch.configuration.optimizer_offload
    if launch.configuration.offload_to_disks and not stage_three:
        raise unsupported(target, "offload_to_disks", True, "it keeps no states on disks", "export deepspeed")
    if launch.configuration.offload_parameters and not stage_three:
        raise unsupported(target, "offload_parameters", True, "it has no such choice", "export deepspeed")
    if percent and not (takes and percent == WHOLE_OFFLOAD):
        problem = "it offloads all optimizer states or none" if takes else "it has no such setting for this plan"
        raise unsupported(target, "optimizer_offload_percent", percent, problem, remedy)


def refuse_layers(target: str, launch: Launch) -> None:
    """Raise ``InvalidConfiguration`` where a plan offloads activations and a target cannot."""
    if layers := launch.configuration.offloaded_layers:
        problem = "it has no setting for activations of layers"
        raise unsupported(target, "offloaded_layers", layers, problem, "export nemo or megatron")


def percent_said(is_on: bool, fraction: str) -> int:
    """The share in percent that such settings name; Megatron-LM's default is all of them."""
    return round(WHOLE_OFFLOAD * float(fraction or "1")) if is_on else 0
