"""Release of Megatron-Core with which each argument came, and what a release needs beside its arguments.

Read in ``megatron/training/arguments.py`` and the configurations that its parser is made of, at the tags
``core_v0.8.0`` to ``core_v0.19.0``.  A release is its minor number: 12 is 0.12.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from app.exports.launch_value import Launch
from cluster_models.cluster.catalogue import gpu_kinds
from cluster_models.cluster.gpus import Precision
from cluster_models.training.framework_choices import ExpertDispatch
from cluster_models.training.frameworks import Framework, frameworks
from cluster_models.training.interleaving import SIZED_SINCE
from cluster_models.training.plan import Plan
from cluster_models.training.workload import Recompute, RecomputeModule, Sharding

OLDEST: Final = 8
NEWEST: Final = 19

SINCE: Final[Mapping[str, int]] = MappingProxyType(
    {
        "--decoder-first-pipeline-num-layers": 9,
        "--decoder-last-pipeline-num-layers": 9,
        "--ckpt-format": 9,
        "--cp-comm-type": 10,
        "--hierarchical-context-parallel-sizes": 10,
        "--microbatch-group-size-per-virtual-pipeline-stage": SIZED_SINCE,
        "--expert-tensor-parallel-size": 10,
        "--moe-ffn-hidden-size": 10,
        "--moe-layer-freq": 10,
        "--moe-shared-expert-intermediate-size": 10,
        "--multi-latent-attention": 10,
        "--num-distributed-optimizer-instances": 10,
        "--account-for-embedding-in-pipeline-split": 11,
        "--account-for-loss-in-pipeline-split": 11,
        "--attention-backend": 11,
        "--moe-permute-fusion": 11,
        "--moe-router-enable-expert-bias": 11,
        "--moe-router-num-groups": 11,
        "--moe-router-group-topk": 11,
        "--num-virtual-stages-per-pipeline-rank": 11,
        "--te-rng-tracker": 11,
        "--use-precision-aware-optimizer": 11,
        "--main-params-dtype": 11,
        "--exp-avg-dtype": 11,
        "--exp-avg-sq-dtype": 11,
        "--cross-entropy-fusion-impl": 12,
        "--data-parallel-sharding-strategy": 12,
        "--optimizer-cpu-offload": 12,
        "--optimizer-offload-fraction": 12,
        "--overlap-cpu-optimizer-d2h-h2d": 12,
        "--external-cuda-graph": 12,
        "--fp8-recipe": 12,
        "--grad-reduce-in-bf16": 12,
        "--moe-enable-deepep": 12,
        "--mtp-num-layers": 12,
        "--recompute-modules": 12,
        "--use-custom-fsdp": 12,
        "--moe-router-force-load-balancing": 13,
        "--pipeline-model-parallel-layout": 13,
        "--moe-router-fusion": 14,
        "--overlap-moe-expert-parallel-comm": 14,
        "--use-megatron-fsdp": 14,
        "--cuda-graph-impl": 15,
        "--fp4-format": 15,
        "--softmax-type": 15,
        "--window-attn-skip-freq": 15,
        "--window-size": 15,
        "--cuda-graph-modules": 18,
        "--cpu-offloading-num-layers": 16,
        "--moe-flex-dispatcher-backend": 16,
        "--moe-shared-expert-gate": 16,
        "--mamba-head-dim": 12,
        "--mamba-num-groups": 12,
        "--mamba-state-dim": 12,
        "--mamba-num-heads": 13,
        "--attention-output-gate": 16,
        "--dsa-indexer-head-dim": 16,
        "--dsa-indexer-n-heads": 16,
        "--dsa-indexer-topk": 16,
        "--experimental-attention-variant": 16,
        "--linear-attention-freq": 16,
        "--linear-conv-kernel-dim": 16,
        "--linear-key-head-dim": 16,
        "--linear-num-key-heads": 16,
        "--linear-num-value-heads": 16,
        "--linear-value-head-dim": 16,
        "--moe-latent-size": 16,
        "--hybrid-layer-pattern": 17,
    }
)
"""The release that an argument came with; what is not here is in all of them."""


def release_of(framework: Framework) -> int:
    """The release whose arguments start a framework: its own, or the newest for one that has none of these."""
    return min(max(framework.megatron_core, OLDEST), NEWEST) if framework.megatron_core else NEWEST


def release_name(release: int) -> str:
    """The release in words."""
    return f"Megatron-Core 0.{release}"


def has(release: int, flag: str) -> bool:
    """Whether the parser of a release knows the argument."""
    return release >= SINCE.get(flag, OLDEST)


def generation_with(release: int) -> str:
    """The oldest generation of the catalogue that is at least at this release of Megatron-Core."""
    return next(each.name for each in frameworks().values() if each.megatron_core >= release)


def starts_megatron(plan: Plan) -> bool:
    """Whether the plan is priced for a framework that takes Megatron-LM's arguments."""
    return plan.workload is not None and plan.workload.framework.megatron_core > 0


def vendors(plan: Plan) -> frozenset[str]:
    """Vendors of the GPUs of a plan, as far as the catalogue knows them."""
    known = gpu_kinds()
    return frozenset(known[stage.gpu_kind].vendor for stage in plan.stages if stage.gpu_kind in known)


def is_blackwell(plan: Plan) -> bool:
    """Whether all GPUs of a plan are NVIDIA's of the generation that brought 4-bit products, or newer."""
    known = gpu_kinds()
    kinds = {stage.gpu_kind for stage in plan.stages}
    return all(
        kind in known and known[kind].vendor == "NVIDIA" and Precision.NVFP4 in known[kind].peak_flops
        for kind in kinds
    )


def overlaps_experts(launch: Launch) -> bool:
    """Whether expert exchange is priced beside compute: not where ``TransformerConfig`` would refuse it."""
    degrees, precision = launch.degrees, launch.workload.precision
    return (
        launch.workload.framework.expert_overlap
        and degrees.expert > 1
        and (degrees.pipeline == 1 or degrees.virtual_pipeline > 1)
        and launch.configuration.recompute is not Recompute.FULL
        and RecomputeModule.MOE not in launch.configuration.recompute_modules
        and precision is not Precision.FP32
    )


@dataclass(frozen=True, slots=True)
class Connections:
    """Hardware queues of a GPU (``CUDA_DEVICE_MAX_CONNECTIONS``): ``count``, or unset where it is ``None``."""

    count: int | None


def connections(launch: Launch) -> Connections | None:
    """Connections that the framework demands or its recipes set; ``None``: neither, or not a Megatron framework.

    ``validate_args`` stops before Blackwell with tensor or context parallelism unless it is 1, up to 0.11 whatever
    the GPU and the degrees, in 0.12 with tensor parallelism on any GPU; Megatron's FSDP and overlapped expert
    exchange need more than 1.  32 as in the plug-ins of Megatron-Bridge's recipes.
    """
    plan = launch.plan
    if not starts_megatron(plan):
        return None
    framework, degrees = launch.workload.framework, launch.degrees
    release = release_of(framework)
    if launch.configuration.sharding is Sharding.PARAMETERS:
        return Connections(None)
    if release <= 11 or (release == 12 and degrees.tensor > 1):
        return Connections(1)
    sparse = launch.architecture.experts is not None
    overlapped = sparse and overlaps_experts(launch) and has(release, "--overlap-moe-expert-parallel-comm")
    if is_blackwell(plan) or overlapped:
        return Connections(32)
    if degrees.tensor > 1 or degrees.context > 1:
        return Connections(1)
    return Connections(32) if sparse and framework.expert_dispatch is not ExpertDispatch.ALL_TO_ALL else None
