"""Choices of the lists in the new-plan form, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from app.documents.framework import SETTINGS, GradientPrecision, WireFact
from app.web.planning.form import DEGREES
from cluster_models.cluster.gpus import Precision
from cluster_models.training.framework_choices import (
    AttentionKernels,
    ContextExchange,
    CudaGraphs,
    ExpertDispatch,
    Float8Scaling,
    FreeSetting,
    Optimizer,
)
from cluster_models.training.frameworks import frameworks
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.optimizer_states import MasterFormat, MomentFormat
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import (
    Choice,
    LinkBandwidth,
    Objective,
    Offload,
    Recompute,
    RecomputeModule,
    Sharding,
)

Options = tuple[tuple[str, str], ...]
"""Values with their words."""

TURNS: Final[Options] = (("", "with all others"), ("true", "after all others, in the background"))
NOT_SAID = ("", "not said")
_PASTE = ("", "paste one below")
_AS_CALIBRATED = ("", "none: imbalance as calibrated")
_AS_FRAMEWORK = ("", "as the framework does")
_WORDS: Final[Mapping[str, str]] = {
    **{each: each.upper() for each in GradientPrecision},
    AttentionKernels.VENDOR: "the vendor's (cuDNN), or FlashAttention-3",
    AttentionKernels.FLASH_2: "FlashAttention-2",
    AttentionKernels.FLASH_TRITON: "FlashAttention-1 in Triton",
    CudaGraphs.PARTIAL: "attention and router",
    CudaGraphs.FULL: "whole iteration",
    ExpertDispatch.ALL_TO_ALL: "all-to-all",
    ExpertDispatch.DEEPEP: "DeepEP",
    ExpertDispatch.HYBRIDEP: "HybridEP",
    Float8Scaling.DELAYED: "a scale a tensor, delayed",
    Float8Scaling.CURRENT: "a scale a tensor, current",
    Float8Scaling.ROW: "a scale a row",
    Float8Scaling.BLOCK: "a scale a block",
}
"""Words for choices of settings that are not called as in documents."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The list of one setting of the framework, with its explanation; ``name`` is that of its input."""

    name: str
    options: Options
    hint: str

    @classmethod
    def of(cls, fact: WireFact) -> Setting:
        """The list that offers what the fact can be, empty where it is a number."""
        name = f"framework_settings.{fact.name}"
        if fact.kind is int:
            return cls(name, (), fact.fact.meaning)
        words = tuple((each, _WORDS.get(each, each)) for each in fact.choices)
        own = words or (("true", "yes"), ("false", "no"))
        return cls(name, (_AS_FRAMEWORK, *own), fact.fact.meaning)


@dataclass(frozen=True, slots=True)
class Choices:
    """The offers of each list."""

    clusters: Options
    models: Options
    calibrations: Options
    routing: Options
    framework: Options
    precision: Options = tuple((value, value.upper()) for value in Precision)
    settings: tuple[Setting, ...] = tuple(map(Setting.of, SETTINGS))
    turns: Options = TURNS
    expert_order: Options = (("", "may be permuted"), ("true", "stays as in the checkpoint"))
    method: Options = (
        (TrainingMethod.LIKELIHOOD, "next tokens"),
        (TrainingMethod.DPO, "DPO, reference model beside"),
        (TrainingMethod.DPO_STORED, "DPO, stored or no reference"),
        (TrainingMethod.POLICY, "policy update, no reference"),
        (TrainingMethod.POLICY_REFERENCE, "policy update, reference model beside"),
    )
    optimizer: Options = (
        (Optimizer.ADAM, "Adam"),
        (Optimizer.SGD, "SGD"),
        (Optimizer.MUON, "Muon"),
        (Optimizer.LION, "Lion"),
        (Optimizer.ADAPTIVE_MUON, "adaptive Muon"),
        (Optimizer.ZEROTH_ORDER, "zeroth-order (MeZO)"),
    )
    moments: Options = (
        (MomentFormat.FP32, "FP32"),
        (MomentFormat.BF16, "BF16"),
        (MomentFormat.FP16, "FP16 with scales"),
        (MomentFormat.FP8, "FP8 with scales"),
        (MomentFormat.INT8, "8 bits in blocks"),
    )
    master_weight: Options = (
        (MasterFormat.FP32, "FP32"),
        (MasterFormat.REMAINDER, "lower half of FP32, beside BF16 weights"),
        (MasterFormat.FP16, "FP16 with scales"),
    )
    recompute: Options = (
        (Recompute.NONE, "none"),
        (Recompute.SELECTIVE, "selective"),
        (Recompute.FULL, "full"),
    )
    recompute_modules: Options = (
        (RecomputeModule.CORE_ATTENTION, "attention scores"),
        (RecomputeModule.LAYER_NORM, "norms"),
        (RecomputeModule.MLA_UP_PROJECTION, "up-projections of latent attention"),
        (RecomputeModule.MLP, "dense MLP"),
        (RecomputeModule.MOE_ACTIVATION, "activation of experts"),
        (RecomputeModule.MOE, "whole sparse MLP"),
        (RecomputeModule.SHARED_EXPERTS, "shared experts"),
    )
    schedule: Options = (
        (PipelineSchedule.ONE_F_ONE_B, "1F1B, interleaved or not"),
        (PipelineSchedule.GPIPE, "GPipe, breadth-first"),
        (PipelineSchedule.ZERO_BUBBLE, "zero-bubble"),
        (PipelineSchedule.ZB_V, "ZB-V"),
        (PipelineSchedule.DUALPIPE_V, "DualPipeV"),
    )
    sharding: Options = (
        (Sharding.NONE, "none"),
        (Sharding.OPTIMIZER, "optimizer state (ZeRO-1)"),
        (Sharding.GRADIENTS, "and gradients (ZeRO-2)"),
        (Sharding.PARAMETERS, "parameters (ZeRO-3, FSDP)"),
    )
    offload: Options = (
        (Offload.NONE, "nothing"),
        (Offload.OPTIMIZER, "optimizer states"),
        (Offload.DISKS, "optimizer states on disks"),
        (Offload.PARAMETERS, "optimizer states and parameters"),
        (Offload.PARAMETERS_ON_DISKS, "both on disks"),
        (Offload.ACTIVATIONS, "activations of layers"),
    )
    free_settings: Options = (
        (FreeSetting.OVERLAP_TENSOR, "overlap of tensor ranks"),
        (FreeSetting.EXPERT_OVERLAP, "overlap of experts' exchange"),
        (FreeSetting.CUDA_GRAPHS, "CUDA graphs"),
        (FreeSetting.EXPERT_DISPATCH, "dispatch to experts"),
        (FreeSetting.SHARDING_RANKS, "copies of optimizer states"),
    )
    context_exchange: Options = (
        (ContextExchange.RING, "ring of keys and values"),
        (ContextExchange.GATHER, "gather of keys and values"),
        (ContextExchange.ALL_TO_ALL, "all-to-all of heads (Ulysses)"),
        (ContextExchange.HIERARCHICAL, "all-to-all of heads in a node, ring over nodes"),
    )
    objective: Options = (
        (Objective.STEP_TIME, "step time"),
        (Objective.GPU_TIME, "GPU time (step time times GPUs)"),
        (Objective.COST, "cost (at the price of the GPUs)"),
        (Objective.ENERGY, "energy (power of the GPUs, as capped)"),
    )
    link_bandwidth: Options = (
        (LinkBandwidth.MEDIAN, "median"),
        (LinkBandwidth.PESSIMISTIC, "pessimistic (p10)"),
    )
    choice: Options = (
        (Choice.SIMPLEST, "the simplest"),
        (Choice.FASTEST, "the fastest"),
        (Choice.ROBUST, "the most robust"),
    )
    degrees: tuple[str, ...] = tuple(DEGREES)


def shipped_frameworks() -> Options:
    """The shipped generations, newest first."""
    return tuple((each.name, each.title) for each in reversed(list(frameworks().values())))


def pasted_or(names: Iterable[str]) -> Options:
    """The offers of names, and of pasting."""
    return (_PASTE, *((name, name) for name in names))


def choices(
    *,
    clusters: Iterable[str],
    models: Iterable[str],
    calibrations: Iterable[str],
    routing: Iterable[str],
    described: Mapping[str, str],
) -> Choices:
    """The offers, with the stored clusters, calibrations and routing, and the models that have a name.

    ``described`` are the frameworks that calibrations describe, with the name of the calibration.
    """
    return Choices(
        clusters=(_PASTE, *((name, name) for name in clusters)),
        models=(_PASTE, *((name, name) for name in models)),
        calibrations=(("", "as shipped"), *((name, name) for name in calibrations if name)),
        routing=(_AS_CALIBRATED, *((name, name) for name in routing)),
        framework=(
            *(
                (name, f"{name} (described by the calibration {whose})")
                for name, whose in described.items()
                if name not in frameworks()
            ),
            *shipped_frameworks(),
        ),
    )
