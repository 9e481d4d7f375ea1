"""Generations of training frameworks: what each does that decides how long a step takes and what it holds.

The same configuration runs 20 to 60 % faster or slower from one release to another.  Here stand the facts of each,
read in its documentation or code; what is fitted on measured steps stands in ``solver/costs/data``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from cluster_models.errors import InvalidWorkload
from cluster_models.model.layer_kinds import ModelPart
from cluster_models.shipped import generations
from cluster_models.training.adapters import FrozenFormat
from cluster_models.training.framework_choices import (
    AttentionKernels,
    ContextExchange,
    CudaGraphs,
    ExpertBalance,
    ExpertDispatch,
    Float8Scaling,
    Optimizer,
    OptimizerOffload,
    Overlap,
    SelectiveRecompute,
    ShardedExchange,
)
from cluster_models.training.framework_facts import Fact, read_fact
from cluster_models.training.interleaving import Interleaving
from cluster_models.training.methods import TrainingMethod
from cluster_models.training.mixed_lengths import Packing
from cluster_models.training.optimizer_states import MasterFormat, MomentFormat
from cluster_models.training.schedules import PipelineSchedule


@dataclass(frozen=True, slots=True)
class Framework:
    """One generation, or what a user describes as ``like`` one.

    Fields other than those of ``ABOUT`` are facts, each a field of a description that its ``Fact`` explains.
    """

    name: Annotated[str, Fact("Name for a workload.")]
    title: Annotated[str, Fact("Name in words.")]
    released: Annotated[str, Fact("Month from which it was current.")]
    fused_attention: Annotated[
        bool, Fact("Attention runs in FlashAttention-like kernels, which never write its scores to memory.")
    ]
    attention_kernels: Annotated[
        AttentionKernels,
        Fact(
            "Whose fused attention runs: the GPU vendor's (or FlashAttention-3), FlashAttention-2, or "
            "FlashAttention-1 in Triton.",
            setting=True,
        ),
    ]
    sequence_parallel: Annotated[bool, Fact("Tensor ranks split the sequence outside their blocks.", setting=True)]
    gradient_bytes: Annotated[
        float,
        Fact(
            "Width of gradients as they are accumulated and reduced: 4 bytes (fp32) or 2 (bf16).",
            precision="gradient_precision",
            setting=True,
        ),
    ]
    own_gradient_bytes: Annotated[
        float,
        Fact(
            "Bytes of a parameter's gradient of one micro-batch where it is kept beside the accumulated one (BF16 "
            "gradients that PyTorch makes and the framework adds into an FP32 buffer); 0 where it is not.",
            most=8.0,
        ),
    ]
    logit_bytes: Annotated[float, Fact("Bytes of output and loss per token and vocabulary entry.", most=64.0)]
    loss_chunk_tokens: Annotated[
        int,
        Fact(
            "Tokens whose logits a rank holds at once, where output and loss are computed chunk by chunk; 0: those "
            "of a whole micro-batch.",
            most=1e9,
        ),
    ]
    step_bytes: Annotated[
        float,
        Fact(
            "Bytes that the optimizer's step takes per owned parameter while it runs: FP32 copies of gradients, "
            "temporaries.",
            most=64.0,
        ),
    ]
    left_step_bytes: Annotated[
        float,
        Fact(
            "Bytes per owned parameter that the step leaves in blocks which it cannot take up again where sharded "
            "states lie flat (ZeRO-1): gradients flattened, copies for the norm. Given back where memory is short.",
            most=64.0,
        ),
    ]
    bucket_bytes: Annotated[float, Fact("Bytes of buffers that reduce gradients and gather weights.", most=1e12)]
    sharded_master: Annotated[
        bool,
        Fact(
            "With sharded parameters the FP32 shard is the weight itself, without a 16-bit shard beside it; in a "
            "pipeline the gathered weights and whole gradients stay until the last micro-batch (PyTorch FSDP)."
        ),
    ]
    gathers_each_micro_batch: Annotated[
        bool, Fact("Also in a pipeline, sharded parameters are gathered for each micro-batch (FSDP that reshards).")
    ]
    shards_gradients: Annotated[
        bool, Fact("Each micro-batch's gradients go to the owners of sharded states alone (ZeRO-2).")
    ]
    dropout: Annotated[
        bool, Fact("Models with learned positions are trained with dropout, whose masks and outputs are kept.")
    ]
    keeps_gathered_inputs: Annotated[
        bool, Fact("What tensor ranks gather before a block stays until its weight gradient, not gathered again.")
    ]
    keeps_norm_outputs: Annotated[
        bool,
        Fact(
            "Norms keep their output, which the product behind them keeps anyway, instead of their input (apex's "
            "memory-efficient LayerNorm)."
        ),
    ]
    keeps_stage_outputs: Annotated[bool, Fact("A pipeline rank holds what it sent on until the backward pass.")]
    interleaving: Annotated[
        Interleaving,
        Fact(
            "How micro-batches pass virtual stages: not at all (a rank has one stage), in Megatron's groups of as "
            "many as pipeline ranks (from Megatron-Core 0.10 on of any legal size), or in PyTorch's equal groups."
        ),
    ]
    schedules: Annotated[
        tuple[PipelineSchedule, ...],
        Fact(
            "Orders in which pipeline ranks can run forwards and backwards: 1F1B (interleaved with virtual "
            "stages), all forwards first (gpipe; breadth-first with virtual stages), zero-bubble, and V-shaped "
            "ZB-V and DualPipeV."
        ),
    ]
    model_parts: Annotated[
        tuple[ModelPart, ...],
        Fact("Parts of models that it trains beside plain attention, MLPs and experts.", least=0),
    ]
    packings: Annotated[
        tuple[Packing, ...],
        Fact(
            "How documents of mixed lengths may fill sequences, each attending to itself alone: padded to a whole "
            "sequence or to the longest of the micro-batch, several whole ones a sequence, or one behind the other "
            "and cut where a sequence ends."
        ),
    ]
    methods: Annotated[
        tuple[TrainingMethod, ...],
        Fact(
            "Methods of training: next tokens; DPO with a frozen reference model beside the trained one, with its "
            "log-probabilities stored, or none; updates of a policy on generated responses, without or with one."
        ),
    ]
    adapters: Annotated[
        tuple[FrozenFormat, ...], Fact("Formats of weights frozen beside adapters (LoRA).", least=0)
    ]
    fills_stages: Annotated[
        bool,
        Fact("Layers fill one pipeline stage after the other, beyond its share of parameters (nanotron)."),
    ]
    fills_pipeline: Annotated[bool, Fact("A step of fewer micro-batches than pipeline stages less one is refused.")]
    overlap_gradients: Annotated[bool, Fact("Gradients are reduced beside the backward pass.", setting=True)]
    overlap_sharded_gradients: Annotated[
        bool, Fact("Where gradients are reduced beside the backward pass, those of sharded optimizers are, too.")
    ]
    sharded_all_reduce: Annotated[
        bool, Fact("Gradients of sharded optimizers are all-reduced, instead of reduce-scattered to their owners.")
    ]
    slices_shards: Annotated[
        bool,
        Fact("The host copies each sharded parameter slice by slice, one for each rank (DeepSpeed before 0.5.5)."),
    ]
    sharding_ranks: Annotated[
        int,
        Fact(
            "Most data ranks that share out optimizer states, every such group with a copy; 0: all of them.",
            most=1e6,
            setting=True,
        ),
    ]
    gradient_sharding: Annotated[bool, Fact("Gradients may be sharded with the optimizer's states (ZeRO-2).")]
    hybrid_sharding: Annotated[bool, Fact("Parameters may be sharded inside groups of data ranks (HSDP).")]
    clips_all_gradients: Annotated[
        bool, Fact("Each rank measures and scales every gradient that it holds, not only those of its shard.")
    ]
    overlap_parameters: Annotated[bool, Fact("Parameters are gathered beside the forward pass.", setting=True)]
    fused_kernels: Annotated[
        bool,
        Fact(
            "Memory-bound work between matrix products runs as fused kernels (Transformer Engine, torch.compile, "
            "XLA) instead of one operation after the other."
        ),
    ]
    overlap_tensor: Annotated[
        bool,
        Fact(
            "Tensor parallel collectives run in chunks beside the matrix products that need or make their data.",
            setting=True,
        ),
    ]
    overlap_tensor_backward: Annotated[
        bool,
        Fact(
            "Without that, tensor parallel collectives of the backward pass run beside the other product of their "
            "layer (Megatron), instead of being waited for at once (PyTorch's DTensor)."
        ),
    ]
    fused_accumulation: Annotated[
        bool, Fact("The product for a weight's gradient adds into the gradient buffer itself.")
    ]
    float8_scaling: Annotated[
        Float8Scaling,
        Fact(
            "What shares a scale in FP8 training: a tensor, by maxima of steps before or by its own, a row, or a "
            "block.",
            setting=True,
        ),
    ]
    fused_loss: Annotated[
        bool,
        Fact("One kernel makes the cross-entropy and its gradient, which overwrites the logits.", setting=True),
    ]
    blocking_transfers: Annotated[bool, Fact("Pipeline ranks wait for their sends, which delay both neighbours.")]
    defer_head_gradient: Annotated[bool, Fact("In a pipeline the head's weight gradient waits for the flush.")]
    head_gradient_limit: Annotated[
        int,
        Fact(
            "Micro-batches whose weight gradients of the output layer wait at most, with what they are made of; "
            "0: all of them.",
            most=1e6,
        ),
    ]
    expert_dispatch: Annotated[
        ExpertDispatch,
        Fact(
            "How tokens travel to their experts and back: a message for each token and expert, or one for all of a "
            "token's experts on a node (DeepEP) or in a larger NVLink domain (HybridEP).",
            setting=True,
        ),
    ]
    expert_overlap: Annotated[
        bool, Fact("Dispatch and combine run beside the compute of another micro-batch.", setting=True)
    ]
    expert_dispatches: Annotated[tuple[ExpertDispatch, ...], Fact("Dispatchers to choose between.", least=0)]
    overlaps: Annotated[tuple[Overlap, ...], Fact("Overlaps that a run can switch on or off.", least=0)]
    grouped_experts: Annotated[bool, Fact("The experts of a GPU run as one grouped product, not one by one.")]
    pads_experts: Annotated[bool, Fact("Every expert works on as many rows as the busiest has tokens.")]
    expert_tensor: Annotated[
        bool, Fact("Experts may have a tensor parallel size of their own (--expert-tensor-parallel-size).")
    ]
    expert_balance: Annotated[
        ExpertBalance,
        Fact("How evenly tokens meet experts: as the router learned it, drawn at random, or cut to a capacity."),
    ]
    untrained_router: Annotated[
        bool,
        Fact(
            "The router was never trained, as in the first steps of a run: all tokens choose the same experts.",
            setting=True,
        ),
    ]
    reduces_once: Annotated[
        bool, Fact("Gradients of sharded parameters are summed whole and reduced after the last micro-batch alone.")
    ]
    sixteen_bit_states: Annotated[
        bool, Fact("Weights and the optimizer's moments are kept in 16 bits, without an FP32 copy.")
    ]
    optimizers: Annotated[tuple[Optimizer, ...], Fact("Optimizers that it trains with.")]
    moment_formats: Annotated[
        tuple[MomentFormat, ...],
        Fact("Formats below FP32 in which a workload may have the moments of Adam kept.", least=0),
    ]
    master_formats: Annotated[tuple[MasterFormat, ...], Fact("Formats below FP32 of a master weight.", least=0)]
    context_exchanges: Annotated[tuple[ContextExchange, ...], Fact("How context ranks meet all keys and values.")]
    optimizer_offload: Annotated[
        OptimizerOffload,
        Fact("How nodes may keep optimizer states: not, any share, all, or with parameters' shards."),
    ]
    disk_offload: Annotated[bool, Fact("States beside sharded parameters may live on nodes' disks (NVMe).")]
    activation_offload: Annotated[
        bool, Fact("Without a pipeline, activations of layers may wait in nodes' memory for the backward pass.")
    ]
    quantized_exchange: Annotated[bool, Fact("A run may quantise what sharded parameters exchange (ZeRO++).")]
    sharded_exchange: Annotated[
        ShardedExchange,
        Fact("Sharded weights gathered in INT8, their gradients scattered in INT4, or both.", setting=True),
    ]
    streams_layers: Annotated[bool, Fact("Layers may run again and backward by chunks of a sequence (StreamBP).")]
    stream_tokens: Annotated[
        int, Fact("Tokens of a chunk that layers run by (StreamBP); 0: whole sequences.", most=1e9, setting=True)
    ]
    whole_logits: Annotated[bool, Fact("Tensor ranks gather the logits before the loss.")]
    cuda_graphs: Annotated[
        CudaGraphs,
        Fact(
            "What is captured in CUDA graphs: nothing, attention and router of each layer, or the whole iteration.",
            setting=True,
        ),
    ]
    graph_captures: Annotated[tuple[CudaGraphs, ...], Fact("CUDA graphs between which a run can choose.", least=0)]
    stops_recompute: Annotated[
        bool,
        Fact("Full recomputation ends before a layer's last matrix product, whose output backward does not need."),
    ]
    selective_recompute: Annotated[
        SelectiveRecompute,
        Fact(
            "What selective recomputation runs again: the attention core, or all but attention and every second "
            "matrix product."
        ),
    ]
    recompute_blocks: Annotated[
        bool,
        Fact("Full recomputation may stop after the first layers of each chunk (--recompute-method block)."),
    ]
    megatron_core: Annotated[
        int,
        Fact(
            "Minor number of the Megatron-Core release whose arguments start it (12 is 0.12): what that release "
            "lacks is neither planned nor written; 0: it takes other arguments.",
            most=1e6,
        ),
    ]
    measured_as: Annotated[str, Fact("The generation with the same kernels that was measured instead; else empty.")]
    source: Annotated[str, Fact("Where the facts come from.")]
    like: Annotated[str, Fact("The generation that a user's description starts from; empty for a shipped one.")] = (
        field(default="", kw_only=True)
    )

    @property
    def generation(self) -> str:
        """The shipped generation that it is, or starts from: its flags and file formats."""
        return self.like or self.name

    @property
    def calibrated_as(self) -> str:
        """The name under which its own runs, or those of one with the same kernels, were measured."""
        return self.name if self.like else self.measured_as or self.name

    def fewest_micro_batches(self, pipeline: int) -> int:
        """Micro-batches below which a step with ``pipeline`` stages is refused."""
        return max(pipeline - 1, 1) if self.fills_pipeline else 1

    @property
    def fitted_under(self) -> tuple[str, ...]:
        """The names under which parameters fitted for it stand; later ones replace earlier ones."""
        return self.measured_as, self.generation, self.name


ABOUT: Final = frozenset({"name", "title", "released", "measured_as", "source", "like"})
"""The fields that say which framework it is; all others are facts."""


@cache
def facts() -> MappingProxyType[str, tuple[Any, Fact]]:
    """Type and meaning of every field of ``Framework``, in order."""
    found = {}
    for name, hint in get_type_hints(Framework, include_extras=True).items():
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        stated = (note for note in notes if isinstance(note, Fact))
        found[name] = (kind, next(stated, Fact(f"{name.replace('_', ' ').capitalize()}.")))
    return MappingProxyType(found)


@cache
def frameworks() -> MappingProxyType[str, Framework]:
    """Every shipped generation by name, oldest first."""
    return generations("frameworks.toml", "frameworks", _framework)


def framework(name: str) -> Framework:
    """The generation called ``name``; raises ``InvalidWorkload`` naming those there are."""
    found = frameworks().get(name)
    if found is None:
        raise InvalidWorkload(
            "workload.framework", name, "no such framework generation", f"use one of {', '.join(frameworks())}"
        )
    return found


def _framework(name: str, entry: dict[str, Any]) -> Framework:
    values = entry | {"name": name}
    return Framework(
        **{column: read_fact(kind, values[column]) for column, (kind, _) in facts().items() if column in values}
    )


DEFAULT_FRAMEWORK: Final = framework("megatron-core-0.12")
"""Framework of a workload that names none."""
