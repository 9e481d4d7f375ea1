"""The framework generations that a workload can name, and what is known of each."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import BaseModel, Field

from cluster_models.frameworks import (
    AttentionKernels,
    CudaGraphs,
    ExpertDispatch,
    SelectiveRecompute,
    frameworks,
)

router = APIRouter(tags=["models"])


class FrameworkAnswer(BaseModel):
    """One generation of a training framework: what it does unless told otherwise."""

    name: str = Field(description="Name for a workload.", examples=["megatron-core-0.12"])
    title: str = Field(description="Name in words.", examples=["Megatron-Core 0.12"])
    released: str = Field(description="Month from which it was current.", examples=["2025-05"])
    fused_attention: bool = Field(description="Attention never writes its scores to memory.", examples=[True])
    attention_kernels: AttentionKernels = Field(
        description="Whose fused attention runs: vendor, flash_2 or flash_triton.", examples=["vendor"]
    )
    sequence_parallel: bool = Field(
        description="Tensor ranks also split the sequence outside their blocks.", examples=[True]
    )
    gradient_bytes: float = Field(description="Bytes of an accumulated and reduced gradient.", examples=[4.0])
    logit_bytes: float = Field(
        description="Bytes that output and loss hold per token and vocabulary entry.", examples=[8.0]
    )
    step_bytes: float = Field(
        description="Bytes that the optimizer's step takes per owned parameter while it runs.", examples=[0.0]
    )
    bucket_bytes: float = Field(
        description="Bytes of the buffers through which gradients are reduced and weights gathered.", examples=[0.0]
    )
    sharded_master: bool = Field(
        description="With sharded parameters the FP32 shard is the weight itself (PyTorch FSDP).", examples=[False]
    )
    dropout: bool = Field(
        description="Models with learned positions are trained with dropout, whose masks are kept.",
        examples=[False],
    )
    keeps_stage_outputs: bool = Field(
        description="A pipeline rank holds what it sent on until the backward pass.", examples=[False]
    )
    overlap_gradients: bool = Field(description="Gradients are reduced beside the backward pass.", examples=[True])
    overlap_parameters: bool = Field(
        description="Parameters are gathered beside the forward pass.", examples=[True]
    )
    fused_kernels: bool = Field(
        description="Memory-bound work between matrix products runs as fused kernels.", examples=[True]
    )
    overlap_tensor: bool = Field(
        description="Tensor parallel collectives run in chunks beside matrix products.", examples=[False]
    )
    fused_accumulation: bool = Field(
        description="The product for a weight's gradient adds into the gradient buffer itself.", examples=[True]
    )
    fused_loss: bool = Field(
        description="One kernel makes the cross-entropy and its gradient, over the logits.", examples=[False]
    )
    blocking_transfers: bool = Field(description="Pipeline ranks wait for their sends.", examples=[False])
    defer_head_gradient: bool = Field(
        description="Pipelined, the output layer's weight gradient waits for the flush.", examples=[False]
    )
    expert_dispatch: ExpertDispatch = Field(
        description="How tokens travel to their experts.", examples=["all_to_all"]
    )
    expert_overlap: bool = Field(
        description="Dispatch runs beside the compute of another micro-batch.", examples=[False]
    )
    expert_tensor: bool = Field(
        description="Experts may have a tensor parallel size of their own.", examples=[True]
    )
    cuda_graphs: CudaGraphs = Field(description="What is captured and launched as a whole.", examples=["none"])
    stops_recompute: bool = Field(
        description="Full recomputation ends before a layer's last matrix product.", examples=[False]
    )
    selective_recompute: SelectiveRecompute = Field(
        description="What selective recomputation runs again.", examples=["attention_core"]
    )
    measured_as: str = Field(
        description="The generation with the same kernels that was measured, where this one was not; else empty.",
        examples=[""],
    )
    source: str = Field(description="Where the facts come from.", examples=["Megatron-LM's documentation"])


@router.get("/frameworks")
def list_frameworks() -> list[FrameworkAnswer]:
    """The framework generations that a workload can name, oldest first, each with the source of its facts."""
    return [FrameworkAnswer(**asdict(each)) for each in frameworks().values()]
