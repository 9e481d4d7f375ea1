"""Choices that frameworks make: values of the facts of ``Framework`` that are neither switches nor numbers."""

from __future__ import annotations

from enum import StrEnum


class Optimizer(StrEnum):
    """Optimizer of the training run."""

    ADAM = "adam"
    SGD = "sgd"
    MUON = "muon"
    """One moment and an orthogonal update for matrices of layers, Adam for all else (Megatron-Core's
    ``TensorParallelMuon``)."""
    LION = "lion"
    """One moment and the sign of an update for matrices of layers (arXiv 2302.06675), Adam for all else in
    Megatron-Core."""

    ADAPTIVE_MUON = "adaptive_muon"
    """Muon whose orthogonal update is scaled element by element by a second moment (AdaMuon, arXiv 2507.11005)."""
    ZEROTH_ORDER = "zeroth_order"
    """Two losses along a random direction, drawn again from its seed, tell how far to go: no gradients, no states
    (MeZO, arXiv 2305.17333, algorithm 1)."""

    @property
    def takes_matrices(self) -> bool:
        """Whether it updates whole matrices of layers, and Adam all else (Megatron-Core's emerging optimizers)."""
        return self in {Optimizer.MUON, Optimizer.LION, Optimizer.ADAPTIVE_MUON}

    @property
    def orthogonalises(self) -> bool:
        """Whether it makes the update of every matrix orthogonal."""
        return self in {Optimizer.MUON, Optimizer.ADAPTIVE_MUON}

    @property
    def has_second_moment(self) -> bool:
        """Whether it keeps a second moment of every parameter."""
        return self in {Optimizer.ADAM, Optimizer.ADAPTIVE_MUON}

    @property
    def runs_backward(self) -> bool:
        """Whether it takes gradients, and not two forward passes alone."""
        return self is not Optimizer.ZEROTH_ORDER


class ExpertDispatch(StrEnum):
    """How tokens travel to the ranks of their experts and back."""

    ALL_TO_ALL = "all_to_all"
    """One message per token and expert (Megatron-Core's default dispatcher)."""
    DEEPEP = "deepep"
    """A token crosses to a node once for all its experts there (DeepEP's kernels)."""
    HYBRIDEP = "hybridep"
    """DeepEP's successor for NVLink domains larger than a node."""


class Overlap(StrEnum):
    """Communication that runs beside compute; the value is the fact of ``Framework`` that says so."""

    GRADIENTS = "overlap_gradients"
    PARAMETERS = "overlap_parameters"
    TENSOR = "overlap_tensor"
    EXPERTS = "expert_overlap"


class FreeSetting(StrEnum):
    """Settings that the planner may choose; the value is the fact of ``Framework`` that says so."""

    OVERLAP_TENSOR = "overlap_tensor"
    EXPERT_OVERLAP = "expert_overlap"
    CUDA_GRAPHS = "cuda_graphs"
    EXPERT_DISPATCH = "expert_dispatch"
    SHARDING_RANKS = "sharding_ranks"
    """Searched as a size of the configuration, not as one of ``RunSettings``."""


class AttentionKernels(StrEnum):
    """Whose fused attention runs."""

    VENDOR = "vendor"
    """Written for the GPU at hand: cuDNN through Transformer Engine or XLA, FlashAttention-3."""
    FLASH_2 = "flash_2"
    """FlashAttention-2, PyTorch's own included, written for Ampere."""
    FLASH_TRITON = "flash_triton"
    """FlashAttention-1 written in Triton for Ampere."""


class SelectiveRecompute(StrEnum):
    """Part that selective recomputation runs again in backward."""

    ATTENTION_CORE = "attention_core"
    """Scores, softmax and the product with the values (Megatron; arXiv 2205.05198, section 5)."""
    ALTERNATE_PRODUCTS = "alternate_products"
    """All but attention and, in 16 bits, every second matrix product (torchtitan's ``selective`` by ``op``)."""


class ExpertBalance(StrEnum):
    """How evenly tokens meet the experts of a layer."""

    NATURAL = "natural"
    """As the router learned it."""
    FORCED = "forced"
    """Experts drawn at random, as benchmarks do (``--moe-router-force-load-balancing``)."""
    CAPACITY = "capacity"
    """Every expert works on its mean share: further tokens are dropped, missing ones padded
    (``--moe-expert-capacity-factor 1 --moe-pad-expert-input-to-capacity``)."""


class ContextExchange(StrEnum):
    """How context ranks meet the keys and values of a whole sequence (Megatron-Core's ``--cp-comm-type``)."""

    RING = "ring"
    """Keys and values pass from rank to rank, each block beside the attention on the one before (``p2p``)."""
    GATHER = "gather"
    """Keys and values are gathered before attention, beside which nothing runs (``all_gather``)."""
    ALL_TO_ALL = "all_to_all"
    """Ranks exchange the sequence for heads before attention and back after it (``a2a``; DeepSpeed's Ulysses)."""
    HIERARCHICAL = "hierarchical"
    """All-to-all among some ranks, a ring over the groups of them (``a2a+p2p``)."""


class OptimizerOffload(StrEnum):
    """How a framework keeps and updates optimizer states in the node's memory (docs/memory_options.md)."""

    NONE = "none"
    SHARE = "share"
    """Any share of states and master weights, gradients and weights copied within the step (Megatron-Core's
    ``HybridDeviceOptimizer``)."""
    STATES = "states"
    """All states and master weights; gradients are copied beside the backward pass (DeepSpeed's ZeRO-Offload)."""
    SHARDS = "shards"
    """All states and the sharded parameters and gradients themselves (PyTorch FSDP's ``CPUOffloadPolicy``)."""


class ShardedExchange(StrEnum):
    """Parts of the exchange of sharded parameters that travel quantised (DeepSpeed's ZeRO++, arXiv 2306.10209)."""

    PLAIN = "plain"
    WEIGHTS = "weights"
    """Weights are gathered in INT8 (``zero_quantized_weights``)."""
    GRADIENTS = "gradients"
    """Gradients reach their owners in INT4, inside nodes first (``zero_quantized_gradients``)."""
    BOTH = "both"

    @property
    def of_weights(self) -> bool:
        """Whether weights are quantised."""
        return self in (ShardedExchange.WEIGHTS, ShardedExchange.BOTH)

    @property
    def of_gradients(self) -> bool:
        """Whether gradients are quantised."""
        return self in (ShardedExchange.GRADIENTS, ShardedExchange.BOTH)


class CudaGraphs(StrEnum):
    """Part of a step that is captured and launched as a whole, free of launch overhead on the host."""

    NONE = "none"
    PARTIAL = "partial"
    """Attention, router and pre-processing of each layer (Transformer Engine's graphs)."""
    FULL = "full"
    """The whole iteration."""


class Float8Scaling(StrEnum):
    """Values that share one scale in FP8 training; MXFP8 has its own."""

    DELAYED = "delayed"
    """A tensor, scaled by the maxima of steps before (Transformer Engine's ``DelayedScaling``)."""
    CURRENT = "current"
    """A tensor, scaled by its own maximum, for which it is read once more."""
    ROW = "row"
    """A row of a product's operand, which along the other dimension is cast by itself (torchao's ``rowwise``)."""
    BLOCK = "block"
    """128 elements of an activation, 128 x 128 of a weight (DeepSeek-V3, arXiv 2412.19437, section 3.3)."""
