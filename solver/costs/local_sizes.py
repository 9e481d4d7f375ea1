"""Sizes of a micro-batch and of the model on one GPU."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import Precision
from cluster_models.model.experts import Experts
from cluster_models.training.adapters import Adapters
from cluster_models.training.context_exchange import GATHERED
from cluster_models.training.framework_choices import ExpertBalance, Float8Scaling
from cluster_models.training.frameworks import Framework
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.candidates import SHARDING_CODES, BoolArray, CandidateBatch, FloatArray
from solver.costs.attended import Attended, attended
from solver.costs.calibration import Calibration

_BUSIEST: Final = 1.31
"""Load of the busiest expert over the mean under a trained router: 448 counts of Mixtral's layers on 7 subjects
(Fiddler, arXiv 2402.07033)."""
ROUTED_SPREAD: Final = ((8.0, 256.0), (0.22, 0.95))
"""Numbers of experts, and the spread of their loads over the mean where nothing balances them; straight in the
logarithm between.  With 0.22 the busiest of 8 has ``_BUSIEST``.  With 0.95 of 256 ``drawn_load`` has 1.24 on 8
ranks, 1.42 on 16 and 1.70 on 32, where counts of DeepSeek-R1's 58 layers on six mixes of prompts have 1.22, 1.46
and 1.82, experts in random orders (SGLang's recorder, attachment of sgl-project/sglang issue 6017)."""
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class LocalSizes:
    """Per-GPU sizes of ``n`` candidates, all (n,) floats.

    ``tokens``: tokens of a micro-batch on one context rank.  ``shard_tokens``: those of one tensor rank where
    the sequence is split as well (sequence parallelism, arXiv 2205.05198, section 4.2.2); also used as "tokens
    times the share of a width".  ``stream_tokens``: tokens of the h-wide stream between the blocks, split only
    with sequence parallelism.  ``sequence``: the full sequence.  ``attended``: what its tokens attend to.
    ``element_bytes``: bytes of an activation;
    ``saved_input_bytes``: of one kept as the input of a matrix product; ``gathered_bytes``: of one gathered over
    tensor ranks, which Transformer Engine quantises first.  ``chunked_collectives``: tensor parallel collectives
    run in chunks beside their matrix products (user buffers, which do not know NVFP4).  ``imbalance``: load of the
    busiest expert rank over the mean; ``expert_balance``, ``untrained_router``, ``pads_experts``: as in
    ``Framework``.  ``is_unbalanced``: no loss balances experts and no counts are known, as in updates of a policy
    (``moe_router_load_balancing_type: none`` in NeMo RL); for time alone, for the busiest rank of each layer is
    another, and what a rank keeps of all layers is near the mean.  ``splits_backward``: the schedule runs gradients
    of weights apart.  ``adapters``: those that are
    trained, beside frozen weights.  ``head_ranks``: context ranks that exchange heads, 1 where keys and values
    alone travel; ``gathers``: where these are gathered.
    """

    sequence: float
    attended: Attended
    micro_batch: FloatArray
    tensor: FloatArray
    context: FloatArray
    expert: FloatArray
    expert_tensor: FloatArray
    imbalance: FloatArray
    tokens: FloatArray
    shard_tokens: FloatArray
    stream_tokens: FloatArray
    saved_input_bytes: float
    element_bytes: float = 2.0
    gathered_bytes: float = 2.0
    chunked_collectives: bool = False
    splits_backward: bool = False
    adapters: Adapters | None = None
    head_ranks: FloatArray | float = 1.0
    gathers: BoolArray | bool = False
    expert_balance: ExpertBalance = ExpertBalance.NATURAL
    untrained_router: bool = False
    is_unbalanced: bool = False
    pads_experts: bool = False

    @property
    def no_weights(self) -> FloatArray | None:
        """(n,) seconds of what computes no gradient of weights; ``None`` where they do not come apart."""
        return np.zeros_like(self.tokens) if self.splits_backward else None


def local_sizes(
    batch: CandidateBatch,
    workload: TrainingWorkload,
    calibration: Calibration,
    *,
    imbalance: FloatArray | None = None,
    most: bool = False,
) -> LocalSizes:
    """Sizes of every candidate of ``batch``; ``imbalance`` (n,) of expert ranks is the calibrated one if absent.

    Micro-batches have the tokens that set the pace of a step, or, with ``most``, those of the longest.
    """
    tensor, context = batch.tensor.astype(np.float64), batch.context.astype(np.float64)
    micro_batch = batch.micro_batch.astype(np.float64)
    documents = attended(batch, workload)
    tokens = micro_batch * documents.tokens(context, most=most) / context
    return LocalSizes(
        sequence=float(workload.sequence_length),
        attended=documents,
        micro_batch=micro_batch,
        tensor=tensor,
        context=context,
        expert=batch.expert.astype(np.float64),
        expert_tensor=batch.expert_tensor.astype(np.float64),
        imbalance=np.where(batch.expert > 1, _imbalance(calibration) if imbalance is None else imbalance, 1.0),
        tokens=tokens,
        shard_tokens=tokens / tensor,
        stream_tokens=tokens / tensor if calibration.framework.sequence_parallel else tokens,
        saved_input_bytes=max(workload.precision.operand_bytes, 1.0),
        element_bytes=workload.precision.activation_bytes,
        gathered_bytes=_gathered_bytes(workload.precision, calibration.framework.float8_scaling),
        chunked_collectives=calibration.framework.overlap_tensor and workload.precision is not Precision.NVFP4,
        splits_backward=batch.runs.splits_backward,
        adapters=workload.adapters,
        head_ranks=np.maximum(batch.exchange, 1).astype(np.float64),
        gathers=batch.exchange == GATHERED,
        expert_balance=calibration.framework.expert_balance,
        untrained_router=calibration.framework.untrained_router,
        is_unbalanced=workload.method.is_policy and imbalance is None and not most,
        pads_experts=calibration.framework.pads_experts,
    )


def _imbalance(calibration: Calibration) -> float:
    """Load of the busiest expert rank over the mean: the same for all where experts work on their mean share."""
    capacity = calibration.framework.expert_balance is ExpertBalance.CAPACITY
    return 1.0 if capacity else calibration.expert_imbalance


def _gathered_bytes(precision: Precision, scaling: Float8Scaling) -> float:
    """Bytes of an element gathered over tensor ranks: rows are scaled after that (torchao's ``rowwise``)."""
    if precision is Precision.FP8 and scaling is Float8Scaling.ROW:
        return precision.activation_bytes
    return min(precision.operand_bytes, 2.0)


def rank_load(experts: Experts, sizes: LocalSizes) -> FloatArray:
    """(n,) tokens that the busiest expert rank receives, over the mean; one with all experts has no busier one.

    Before training no more ranks receive any than a token has experts.
    """
    if sizes.untrained_router and sizes.expert_balance is ExpertBalance.NATURAL:
        return np.maximum(sizes.imbalance, sizes.expert / experts.active)
    if sizes.is_unbalanced and sizes.expert_balance is ExpertBalance.NATURAL:
        return np.maximum(sizes.imbalance, drawn_load(experts.count, sizes.expert))
    return sizes.imbalance


def drawn_load(count: int, ranks: FloatArray) -> FloatArray:
    """(n,) mean load of the busiest of ``ranks`` (n,) over the mean, which share ``count`` experts out at random.

    The loads of a rank's count / ranks experts add up, and the largest of so many normal sums lies as far out as
    G. Blom's approximation says (1958).
    """
    every, which = np.unique(ranks, return_inverse=True)
    largest = [_NORMAL.inv_cdf((number - 0.375) / (number + 0.25)) for number in every.tolist()]
    spread = np.interp(np.log(count), np.log(ROUTED_SPREAD[0]), ROUTED_SPREAD[1])
    return np.asarray(1.0 + spread * np.sqrt(ranks / count) * np.array(largest)[which])


def routed_tokens(experts: Experts, sizes: LocalSizes) -> FloatArray:
    """(n,) copies of tokens that the busiest expert rank works on, padded ones among them.

    Every rank sends its share of a micro-batch to ``active`` experts each, so that it receives as many on average.
    Ranks that cut an expert between them then gather what each of them received: ``gathered_tokens``.
    """
    load = rank_load(experts, sizes)
    if sizes.pads_experts and sizes.expert_balance is ExpertBalance.NATURAL:
        load = np.maximum(load, experts.count / experts.active if sizes.untrained_router else _BUSIEST)
    return np.asarray(sizes.shard_tokens * experts.active * load)


def drawn_share(experts: Experts, sizes: LocalSizes) -> float:
    """Share of the rows of experts' output gradients that are not zero.

    Experts that only fill a capacity give their rows a probability of zero, which the gradient is multiplied by
    (Megatron-Core's ``unpermute``): before training all but the ``active`` ones that tokens meet.
    """
    fills = sizes.untrained_router and sizes.expert_balance is ExpertBalance.CAPACITY
    return experts.active / experts.count if fills else 1.0


def gathered_tokens(experts: Experts, sizes: LocalSizes) -> FloatArray:
    """(n,) copies of tokens that the experts of the busiest rank work on: those of all its expert tensor peers."""
    return np.asarray(sizes.expert_tensor * routed_tokens(experts, sizes))


def is_sharded(batch: CandidateBatch, sharding: Sharding) -> BoolArray:
    """(n,) which candidates use exactly this sharding."""
    return np.asarray(batch.sharding == SHARDING_CODES.index(sharding))


def shards_states(batch: CandidateBatch) -> BoolArray:
    """(n,) which candidates shard the optimizer's states beside whole weights (ZeRO-1 and 2)."""
    return np.asarray(is_sharded(batch, Sharding.OPTIMIZER) | is_sharded(batch, Sharding.GRADIENTS))


def chunk_share(sizes: LocalSizes, framework: Framework) -> FloatArray:
    """(n,) share of a sequence that layers run again at a time; tensor and context ranks cut it into no chunks."""
    alone = (sizes.tensor == 1) & (sizes.context == 1) & (framework.stream_tokens > 0)
    return np.where(alone, np.minimum(framework.stream_tokens / sizes.sequence, 1.0), 1.0)


def is_hybrid(batch: CandidateBatch) -> BoolArray:
    """(n,) which candidates shard parameters inside groups that are smaller than all data ranks (HSDP)."""
    return np.asarray(is_sharded(batch, Sharding.PARAMETERS) & (batch.sharding_ranks > 0))
