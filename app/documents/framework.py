"""The training framework of a workload, as its owner writes it."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Final

from pydantic import Field

from app.documents.reading import Document, FieldProblem, Flag, InvalidDocument, close_name
from cluster_models.frameworks import AttentionKernels, CudaGraphs, ExpertDispatch, Framework, frameworks


class GradientPrecision(StrEnum):
    """Number format in which gradients are accumulated and reduced."""

    FP32 = "fp32"
    BF16 = "bf16"


_GRADIENT_BYTES: Final = {GradientPrecision.FP32: 4.0, GradientPrecision.BF16: 2.0}


class FrameworkSettings(Document):
    """Where a run departs from its framework's defaults; what is left out stays as the framework does it."""

    sequence_parallel: Flag | None = Field(
        None, description="Whether tensor ranks also split the sequence outside their blocks.", examples=[True]
    )
    gradient_precision: GradientPrecision | None = Field(
        None, description="Number format of accumulated and reduced gradients.", examples=["fp32"]
    )
    attention_kernels: AttentionKernels | None = Field(
        None, description="Whose fused attention runs: vendor, flash_2 or flash_triton.", examples=["vendor"]
    )
    fused_loss: Flag | None = Field(
        None, description="Whether one kernel makes the cross-entropy and its gradient.", examples=[True]
    )
    overlap_gradients: Flag | None = Field(
        None, description="Whether gradients are reduced beside the backward pass.", examples=[True]
    )
    overlap_parameters: Flag | None = Field(
        None, description="Whether parameters are gathered beside the forward pass.", examples=[True]
    )
    overlap_tensor: Flag | None = Field(
        None,
        description="Whether tensor parallel collectives run in chunks beside matrix products.",
        examples=[True],
    )
    cuda_graphs: CudaGraphs | None = Field(
        None,
        description="What is captured in CUDA graphs: none, partial (attention and router) or full.",
        examples=["partial"],
    )
    expert_dispatch: ExpertDispatch | None = Field(
        None, description="How tokens travel to experts: all_to_all, deepep or hybridep.", examples=["deepep"]
    )
    expert_overlap: Flag | None = Field(
        None,
        description="Whether dispatch and combine run beside the compute of another micro-batch.",
        examples=[False],
    )


def to_framework(name: str, settings: FrameworkSettings) -> Framework:
    """The generation called ``name`` with the settings in place; raises ``InvalidDocument`` where there is none."""
    known = frameworks()
    if name not in known:
        remedy = close_name(name, list(known))
        raise InvalidDocument([FieldProblem("framework", name, "no such framework generation", remedy)])
    stated = settings.model_dump(exclude_none=True)
    if precision := stated.pop("gradient_precision", None):
        stated["gradient_bytes"] = _GRADIENT_BYTES[precision]
    return replace(known[name], **stated)


def settings_of(framework: Framework) -> FrameworkSettings:
    """Where ``framework`` departs from the generation of its name."""
    own, run = _switched(frameworks()[framework.name]), _switched(framework)
    return FrameworkSettings(**{name: value for name, value in run.items() if value != own[name]})


def _switched(framework: Framework) -> dict[str, object]:
    """What every setting is in ``framework``."""
    by_bytes = {width: precision for precision, width in _GRADIENT_BYTES.items()}
    stated: dict[str, object] = {"gradient_precision": by_bytes[framework.gradient_bytes]}
    return stated | {
        name: getattr(framework, name) for name in FrameworkSettings.model_fields if name not in stated
    }
