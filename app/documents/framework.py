"""The training framework of a workload, as its owner writes it."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum

from pydantic import Field

from app.documents.reading import Document, FieldProblem, InvalidDocument, close_name
from cluster_models.frameworks import CudaGraphs, ExpertDispatch, Framework, frameworks


class GradientPrecision(StrEnum):
    """Number format in which gradients are accumulated and reduced."""

    FP32 = "fp32"
    BF16 = "bf16"


_GRADIENT_BYTES = {GradientPrecision.FP32: 4.0, GradientPrecision.BF16: 2.0}


class FrameworkSettings(Document):
    """Where a run departs from its framework's defaults; what is left out stays as the framework does it."""

    sequence_parallel: bool | None = Field(
        None, description="Whether tensor ranks also split the sequence outside their blocks.", examples=[True]
    )
    gradient_precision: GradientPrecision | None = Field(
        None, description="Number format of accumulated and reduced gradients.", examples=["fp32"]
    )
    cuda_graphs: CudaGraphs | None = Field(
        None,
        description="What is captured in CUDA graphs: none, partial (attention and router) or full.",
        examples=["partial"],
    )
    expert_dispatch: ExpertDispatch | None = Field(
        None, description="How tokens travel to experts: all_to_all, deepep or hybridep.", examples=["deepep"]
    )
    expert_overlap: bool | None = Field(
        None,
        description="Whether dispatch and combine run beside the compute of another micro-batch.",
        examples=[False],
    )


def to_framework(generation: str, settings: FrameworkSettings) -> Framework:
    """The generation with the settings in place; raises ``InvalidDocument`` where there is none of this name."""
    known = frameworks()
    if generation not in known:
        problem = FieldProblem(
            "framework", generation, "no such framework generation", close_name(generation, list(known))
        )
        raise InvalidDocument([problem])
    stated = settings.model_dump(exclude_none=True, exclude={"gradient_precision"})
    if settings.gradient_precision is not None:
        stated["gradient_bytes"] = _GRADIENT_BYTES[settings.gradient_precision]
    return replace(known[generation], **stated)


def settings_of(framework: Framework) -> FrameworkSettings:
    """Where ``framework`` departs from the generation of its name."""
    own = frameworks()[framework.name]
    changed = {
        name: getattr(framework, name)
        for name in ("sequence_parallel", "cuda_graphs", "expert_dispatch", "expert_overlap")
        if getattr(framework, name) != getattr(own, name)
    }
    if framework.gradient_bytes != own.gradient_bytes:
        by_bytes = {width: precision for precision, width in _GRADIENT_BYTES.items()}
        changed["gradient_precision"] = by_bytes[framework.gradient_bytes]
    return FrameworkSettings(**changed)
