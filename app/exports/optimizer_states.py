"""Formats of optimizer states in the words of Megatron-Core's ``OptimizerConfig``, for arguments and overrides."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from app.exports.contract import unreadable, unsupported
from app.exports.launch_value import Launch
from cluster_models.training.framework_choices import Optimizer
from cluster_models.training.optimizer_states import FULL_STATES, MasterFormat, MomentFormat, OptimizerStates

FIELDS: Final = ("main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")


def state_formats(tool: str, launch: Launch) -> tuple[str, ...]:
    """Values of ``FIELDS``, empty where all have FP32; raises ``InvalidConfiguration`` for what the tool lacks.

    Remainders are what the optimizer makes of an FP32 copy beside BF16 weights (``store_param_remainders``).
    """
    states = launch.workload.optimizer_states
    if not states.is_narrow:
        return ()
    if MomentFormat.INT8 in (states.first_moment, states.second_moment):
        problem = "its Adam has moments of FP32, BF16, FP16 and FP8"
        raise unsupported(tool, "optimizer_states", states.words, problem)
    master = MasterFormat.FP32 if states.master_weight is MasterFormat.REMAINDER else states.master_weight
    return str(master), str(states.first_moment), str(states.second_moment)


def states_said(
    formats: tuple[str, ...], *, in_bf16: bool, sharded_parameters: bool, offloaded: bool = False
) -> OptimizerStates:
    """The states of such values; ``formats`` is empty where the precision-aware optimizer is not asked for.

    ``HybridDeviceOptimizer``, which updates offloaded states, keeps FP32 copies of weights on either side.
    """
    if not formats:
        return FULL_STATES
    try:
        master, first, second = MasterFormat(formats[0]), MomentFormat(formats[1]), MomentFormat(formats[2])
    except ValueError as error:
        raise unreadable("exports.optimizer_states", formats, "are not formats of Megatron's Adam") from error
    if master is MasterFormat.FP32 and in_bf16 and not sharded_parameters and not offloaded:
        master = MasterFormat.REMAINDER
    return OptimizerStates(first, second, master)


def refuse_optimizer(tool: str, launch: Launch, *, takes: Container[Optimizer] = ()) -> None:
    """Refuse optimizers that a tool is not told beside Adam, its default."""
    optimizer = launch.workload.optimizer
    if not optimizer.runs_backward:
        problem, remedy = "MeZO's authors have a trainer of their own", "run theirs with --trainer zo"
        raise unsupported(tool, "optimizer", str(optimizer), problem, remedy)
    if optimizer is not Optimizer.ADAM and optimizer not in takes:
        remedy = "export megatron for 0.18" if optimizer.takes_matrices else "export megatron"
        raise unsupported(tool, "optimizer", str(optimizer), "it is not told so", remedy)


def refuse_states(tool: str, launch: Launch) -> None:
    """Refuse formats below FP32 where a tool has no option for them."""
    states = launch.workload.optimizer_states
    if states.is_narrow:
        raise unsupported(tool, "optimizer_states", states.words, "it has no such setting", "export megatron")
