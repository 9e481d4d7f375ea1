"""Which training runs can keep optimizer states in the nodes' memory (docs/memory_options.md)."""

from __future__ import annotations

from typing import Final

from cluster_models.cluster.gpus import Precision
from cluster_models.training.framework_choices import CudaGraphs, Optimizer, OptimizerOffload
from cluster_models.training.plan import Configuration
from cluster_models.training.workload import (
    STAGE_THREE,
    WHOLE_OFFLOAD,
    Offload,
    Recompute,
    Sharding,
    TrainingWorkload,
)

ON_DISKS: Final = 2 * WHOLE_OFFLOAD
WITH_PARAMETERS: Final = 3 * WHOLE_OFFLOAD
ALL_ON_DISKS: Final = 4 * WHOLE_OFFLOAD
"""Codes of ``STAGE_THREE`` among percents of states in the nodes' memory."""


def offload_refusal(workload: TrainingWorkload) -> str:
    """Why a run cannot offload optimizer states, as a clause; empty where it can.

    Processors update FP32 states of Adam beside 16-bit weights (``torch.optim.AdamW``, DeepSpeed's ``cpu_adam``).
    """
    framework = workload.framework
    if framework.optimizer_offload is OptimizerOffload.NONE:
        return f"{framework.name} does not offload optimizer states"
    reasons = {
        "is planned for Adam alone": workload.optimizer is not Optimizer.ADAM,
        "is planned beside 16-bit weights alone": workload.precision not in {Precision.BF16, Precision.FP16},
        "keeps all states in FP32": workload.optimizer_states.is_narrow or framework.sixteen_bit_states,
        "is not planned beside adapters, whose states are small": workload.adapters is not None,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def stage_three_refusal(workload: TrainingWorkload, place: Offload) -> str:
    """Why a run cannot keep its states at a ``place`` of ``STAGE_THREE``, as a clause; empty where it can."""
    framework = workload.framework
    if place is not Offload.PARAMETERS and not framework.disk_offload:
        return f"{framework.name} keeps no states on disks"
    if place is not Offload.DISKS and framework.optimizer_offload is not OptimizerOffload.STATES:
        return f"{framework.name} has no such choice for parameters"
    if Sharding.PARAMETERS not in workload.shardings:
        return "goes with sharding parameters (DeepSpeed's stage 3)"
    return offload_refusal(workload)


def layers_refusal(workload: TrainingWorkload) -> str:
    """Why the activations of no layer may wait in the nodes' memory, as a clause; empty where they may.

    Transformer Engine copies them, not beside CUDA graphs; ``TransformerConfig`` refuses recomputation beside it.
    """
    framework, pinned, forbidden = workload.framework, workload.pinned, workload.forbidden
    reasons = {
        "goes with offload activations": Offload.ACTIVATIONS not in workload.offload,
        f"is not offered by {framework.name}": not framework.activation_offload,
        "does not go with CUDA graphs": framework.cuda_graphs is not CudaGraphs.NONE,
        "goes with recompute none": Recompute.NONE not in workload.recompute,
        "goes with pipeline 1": pinned.get("pipeline", 1) > 1 or 1 in forbidden.get("pipeline", ()),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def offloaded_layers(workload: TrainingWorkload, layers: int) -> list[int]:
    """Numbers of layers, increasing, whose activations plans of a model with so many ``layers`` may offload.

    One layer stays at least.  Without 0 among them every plan has one pipeline rank and recomputes nothing.
    """
    pinned, forbidden = workload.pinned.get("offloaded_layers"), workload.forbidden.get("offloaded_layers", ())
    found = range(1 if layers_refusal(workload) else layers)
    return [count for count in found if count not in forbidden and pinned in {None, count}]


def must_offload_layers(workload: TrainingWorkload) -> bool:
    """Whether every plan offloads the activations of some layers."""
    return workload.pinned.get("offloaded_layers", 0) > 0 or 0 in workload.forbidden.get("offloaded_layers", ())


def offloads_with(style: OptimizerOffload, sharding: Sharding) -> bool:
    """Whether states can be offloaded under a sharding, of a single rank as well."""
    by_style = {
        OptimizerOffload.NONE: (),
        OptimizerOffload.SHARE: (Sharding.OPTIMIZER,),
        OptimizerOffload.STATES: (Sharding.OPTIMIZER, Sharding.GRADIENTS, Sharding.PARAMETERS),
        OptimizerOffload.SHARDS: (Sharding.PARAMETERS,),
    }
    return sharding in by_style[style]


def can_offload(workload: TrainingWorkload) -> bool:
    """Whether a run can offload optimizer states under some sharding that it allows."""
    style = workload.framework.optimizer_offload
    return not offload_refusal(workload) and any(offloads_with(style, each) for each in workload.shardings)


def place_of_states(configuration: Configuration) -> Offload:
    """Where a configuration keeps optimizer states."""
    if configuration.offload_parameters:
        return Offload.PARAMETERS_ON_DISKS if configuration.offload_to_disks else Offload.PARAMETERS
    if configuration.offload_to_disks:
        return Offload.DISKS
    return Offload.OPTIMIZER if configuration.optimizer_offload else Offload.NONE


def may_offload(workload: TrainingWorkload, sharding: Sharding) -> bool:
    """Whether plans with a sharding may offload some states."""
    some = any(offload_percents(workload)) or bool(stage_three_codes(workload, sharding))
    return offloads_with(workload.framework.optimizer_offload, sharding) and some


def stage_three_codes(workload: TrainingWorkload, sharding: Sharding) -> list[int]:
    """Codes of the places of ``STAGE_THREE`` at which plans with a sharding may keep all states."""
    pinned, forbidden = workload.pinned.get("optimizer_offload"), workload.forbidden.get("optimizer_offload", ())
    if pinned not in {None, WHOLE_OFFLOAD} or WHOLE_OFFLOAD in forbidden or sharding is not Sharding.PARAMETERS:
        return []
    codes = zip(STAGE_THREE, (ON_DISKS, WITH_PARAMETERS, ALL_ON_DISKS), strict=True)
    return [code for place, code in codes if place in workload.offload and not stage_three_refusal(workload, place)]


def least_offload(workload: TrainingWorkload, sharding: Sharding) -> list[int]:
    """Percents of the states that plans offload whatever they hold, with codes of ``STAGE_THREE``, if any can."""
    percents = offload_percents(workload)
    least = percents[:1] if may_offload(workload, sharding) else [0] * (0 in percents)
    return least + stage_three_codes(workload, sharding)


def offload_percents(workload: TrainingWorkload) -> list[int]:
    """Shares of the optimizer states, increasing, that plans may offload where their sharding allows any."""
    found = [0] * (Offload.NONE in workload.offload)
    if Offload.OPTIMIZER in workload.offload and not offload_refusal(workload):
        any_share = workload.framework.optimizer_offload is OptimizerOffload.SHARE
        found += range(1, WHOLE_OFFLOAD + 1) if any_share else [WHOLE_OFFLOAD]
    pinned, forbidden = workload.pinned.get("optimizer_offload"), workload.forbidden.get("optimizer_offload", ())
    return [percent for percent in found if percent not in forbidden and pinned in {None, percent}]
