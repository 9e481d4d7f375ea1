"""Experts in Megatron-LM's arguments: where they lie, how tokens reach them, the kernels that were priced."""

from __future__ import annotations

from typing import Final

from app.exports.launch_value import Launch
from app.exports.megatron_flags import Flag
from app.exports.megatron_releases import SINCE, has, overlaps_experts
from cluster_models.cluster.gpus import Precision
from cluster_models.training.framework_choices import ExpertBalance, ExpertDispatch

_DEEPEP: Final = "--moe-enable-deepep"
_BACKEND: Final = "--moe-flex-dispatcher-backend"


def group_flags(launch: Launch, release: int) -> list[Flag]:
    """Where experts lie, how tokens reach them, and the kernels that the cost model counts on."""
    workload, degrees = launch.workload, launch.degrees
    framework = workload.framework
    flags = [Flag("--expert-model-parallel-size", degrees.expert)]
    if has(release, "--expert-tensor-parallel-size") or degrees.expert_tensor != degrees.tensor:
        flags.append(Flag("--expert-tensor-parallel-size", degrees.expert_tensor))
    flags += _dispatch(framework.expert_dispatch, release)
    if overlaps_experts(launch):
        flags.append(Flag("--overlap-moe-expert-parallel-comm", priced="expert exchange beside compute"))
    if workload.precision not in {Precision.FP16, Precision.FP32}:
        flags.append(Flag("--moe-grouped-gemm"))
    if framework.fused_kernels:
        flags.append(Flag("--moe-permute-fusion", priced="fused permutation of tokens"))
        flags.append(Flag("--moe-router-fusion", priced="a fused router"))
    if framework.expert_balance is ExpertBalance.FORCED:
        flags.append(Flag("--moe-router-force-load-balancing", priced="tokens drawn at random"))
    if framework.expert_balance is ExpertBalance.CAPACITY:
        flags.append(Flag("--moe-expert-capacity-factor", "1.0"))
        flags.append(Flag("--moe-pad-expert-input-to-capacity"))
    return flags


def _dispatch(dispatch: ExpertDispatch, release: int) -> list[Flag]:
    if dispatch is ExpertDispatch.ALL_TO_ALL or not has(release, _DEEPEP):
        return [Flag("--moe-token-dispatcher-type", "alltoall")]
    flex = Flag("--moe-token-dispatcher-type", "flex")
    if has(release, _BACKEND):
        return [flex, Flag(_BACKEND, str(dispatch))]
    return [flex, Flag(_DEEPEP)]


def dispatch_unsaid(launch: Launch, release: int) -> tuple[str, ...]:
    """Parts of the priced exchange for which the release has no argument, in words."""
    framework = launch.workload.framework
    if launch.architecture.experts is None:
        return ()
    found = []
    if framework.expert_dispatch is not ExpertDispatch.ALL_TO_ALL and not has(release, _DEEPEP):
        found.append(f"{framework.expert_dispatch}, for which 0.{SINCE[_DEEPEP]} or newer is needed")
    elif framework.expert_dispatch is ExpertDispatch.HYBRIDEP and not has(release, _BACKEND):
        found.append(f"hybridep, which came with 0.{SINCE[_BACKEND]} (deepep stands for it)")
    return tuple(found)
