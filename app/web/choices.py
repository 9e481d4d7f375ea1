"""What the lists of the new-plan form offer, in words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from app.documents.framework import GradientPrecision
from cluster_models.frameworks import AttentionKernels, CudaGraphs, ExpertDispatch, frameworks
from cluster_models.gpus import Precision
from cluster_models.workload import LinkBandwidth, Objective, Optimizer, Recompute, Sharding

Options = tuple[tuple[str, str], ...]
"""Values with their words."""

NOT_SAID = ("", "not said")
_PASTE = ("", "paste one below")
_AS_CALIBRATED = ("", "none: imbalance as calibrated")
_AS_FRAMEWORK = ("", "as the framework does")


@dataclass(frozen=True, slots=True)
class Choices:
    """The offers of each list."""

    clusters: Options
    models: Options
    calibrations: Options
    routing: Options
    precision: Options = tuple((value, value.upper()) for value in Precision)
    framework: Options = tuple((each.name, each.title) for each in reversed(list(frameworks().values())))
    yes_no: Options = (_AS_FRAMEWORK, ("true", "yes"), ("false", "no"))
    gradient_precision: Options = (_AS_FRAMEWORK, *((value, value.upper()) for value in GradientPrecision))
    attention_kernels: Options = (
        _AS_FRAMEWORK,
        (AttentionKernels.VENDOR, "the vendor's (cuDNN), or FlashAttention-3"),
        (AttentionKernels.FLASH_2, "FlashAttention-2"),
        (AttentionKernels.FLASH_TRITON, "FlashAttention-1 in Triton"),
    )
    cuda_graphs: Options = (
        _AS_FRAMEWORK,
        (CudaGraphs.NONE, "none"),
        (CudaGraphs.PARTIAL, "attention and router"),
        (CudaGraphs.FULL, "whole iteration"),
    )
    expert_dispatch: Options = (
        _AS_FRAMEWORK,
        (ExpertDispatch.ALL_TO_ALL, "all-to-all"),
        (ExpertDispatch.DEEPEP, "DeepEP"),
        (ExpertDispatch.HYBRIDEP, "HybridEP"),
    )
    expert_order: Options = (("", "may be permuted"), ("true", "stays as in the checkpoint"))
    optimizer: Options = ((Optimizer.ADAM, "Adam"), (Optimizer.SGD, "SGD"))
    recompute: Options = (
        (Recompute.NONE, "none"),
        (Recompute.SELECTIVE, "selective"),
        (Recompute.FULL, "full"),
    )
    sharding: Options = (
        (Sharding.NONE, "none"),
        (Sharding.OPTIMIZER, "optimizer state (ZeRO-1)"),
        (Sharding.PARAMETERS, "parameters (ZeRO-3, FSDP)"),
    )
    objective: Options = (
        (Objective.STEP_TIME, "step time"),
        (Objective.GPU_TIME, "GPU time (step time times GPUs)"),
        (Objective.COST, "cost (at the price of the GPUs)"),
    )
    link_bandwidth: Options = (
        (LinkBandwidth.MEDIAN, "median"),
        (LinkBandwidth.PESSIMISTIC, "pessimistic (p10)"),
    )
    degrees: Options = (
        ("tensor", "Tensor (TP)"),
        ("pipeline", "Pipeline (PP)"),
        ("data", "Data (DP)"),
        ("context", "Context (CP)"),
        ("expert", "Expert (EP)"),
        ("expert_tensor", "Expert tensor parallel size (ETP)"),
        ("virtual_pipeline", "Virtual stages (VPP)"),
        ("micro_batch", "Micro-batch, sequences"),
    )


def choices(
    *, clusters: Iterable[str], models: Iterable[str], calibrations: Iterable[str], routing: Iterable[str]
) -> Choices:
    """The offers, with the stored clusters, calibrations and routing, and the models that have a name."""
    return Choices(
        clusters=(_PASTE, *((name, name) for name in clusters)),
        models=(_PASTE, *((name, name) for name in models)),
        calibrations=(("", "as shipped"), *((name, name) for name in calibrations if name)),
        routing=(_AS_CALIBRATED, *((name, name) for name in routing)),
    )
