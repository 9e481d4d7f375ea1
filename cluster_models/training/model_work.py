"""FLOPs that a workload asks of its model."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.flops import (
    BACKWARD_TO_FORWARD,
    forward_flops_per_token,
    model_flops_per_token,
    score_flops,
)
from cluster_models.model.layer_kinds import Mixer
from cluster_models.training.adapters import adapter_parameters
from cluster_models.training.mixed_lengths import MixedLengths
from cluster_models.training.packing import document_tokens, packed_sequences
from cluster_models.training.workload import TrainingWorkload


def workload_flops_per_token(architecture: Architecture, workload: TrainingWorkload) -> float:
    """FLOPs that training needs per token, which attends to the earlier ones of its own document.

    Forward passes of a reference model, or for log-probabilities, are needed, too.  Frozen weights have no
    gradients; their adapters do.  Zeroth-order training has two forward passes alone.
    """
    passes = 1 + BACKWARD_TO_FORWARD
    whole = model_flops_per_token(architecture, workload.sequence_length)
    if workload.lengths is not None:
        whole += passes * sum(
            _mean_scores(architecture, workload.lengths, workload.sequence_length, kind.mixer)
            - score_flops(architecture, workload.sequence_length, kind.mixer)
            for kind in architecture.layer_pattern
            if kind.attends
        )
    whole *= (workload.forward_passes + BACKWARD_TO_FORWARD * workload.optimizer.runs_backward) / passes
    return whole + _adapter_flops(architecture, workload) - _frozen_flops(architecture, workload)


def _adapter_flops(architecture: Architecture, workload: TrainingWorkload) -> float:
    """FLOPs per token of the adapters, forward and backward."""
    if workload.adapters is None:
        return 0.0
    fused = workload.framework.megatron_core > 0
    parameters = sum(
        adapter_parameters(architecture, kind, workload.adapters, fused=fused)
        for kind in architecture.layer_pattern
    )
    return 2.0 * (1 + BACKWARD_TO_FORWARD) * parameters


def _frozen_flops(architecture: Architecture, workload: TrainingWorkload) -> float:
    """FLOPs per token of weight gradients that frozen weights do not have."""
    if workload.adapters is None:
        return 0.0
    forward = forward_flops_per_token(architecture, workload.sequence_length)
    return forward.total - forward.attention_scores - forward.recurrence


def attended_length(workload: TrainingWorkload) -> int:
    """Tokens of a sequence whose tokens attend to as many as those of the workload's documents do."""
    if workload.lengths is None:
        return workload.sequence_length
    pairs = packed_sequences(workload.lengths, workload.sequence_length).pairs()
    return max(1, round(2.0 * float(pairs.mean()) / workload.sequence_length))


@lru_cache(maxsize=256)
def _mean_scores(architecture: Architecture, mixed: MixedLengths, length: int, mixer: Mixer) -> float:
    documents, shares = document_tokens(mixed, length)
    flops = [score_flops(architecture, tokens, mixer) for tokens in documents.tolist()]
    return float(shares @ np.array(flops))
