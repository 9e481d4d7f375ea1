"""Parameters that each GPU holds, by chunk and by pipeline rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import ATTENDING, LayerKind, Mixer, Mlp
from cluster_models.training.frameworks import Framework
from cluster_models.training.optimizer_states import optimizer_instances
from cluster_models.training.plan import RankOrder
from cluster_models.training.workload import Sharding
from solver.candidates import ORDER_CODES, BoolArray, CandidateBatch, FloatArray, IntArray
from solver.costs.local_sizes import is_sharded

PREDICTION_NORMS: Final = 3.0
"""Norms of a prediction layer beside its decoder layer's: hidden state, next embedding, before the head."""


@dataclass(frozen=True, slots=True)
class LocalParameters:
    """Parameters per GPU before any data parallel sharding, counted in parameters.

    ``layers`` (n, K): what all ranks of the context and data group hold of a layer of each kind; ``experts`` (n,):
    routed experts of a sparse layer on one rank, each cut by ``expert_tensor``; ``largest_layer`` (n,): the most of
    one layer, these included;
    ``common`` (n, P) and ``routed`` (n, P): totals of a pipeline rank, embedding and head included; ``tables``
    (n, P): those of embedding and head alone.
    """

    layers: FloatArray
    largest_layer: FloatArray
    experts: FloatArray
    common: FloatArray
    routed: FloatArray
    tables: FloatArray


def local_parameters(batch: CandidateBatch, layers: IntArray, architecture: Architecture) -> LocalParameters:
    """Parameters of every candidate; matrices are split over tensor ranks, norms and routers repeated.

    Tied embeddings that share a GPU count once; on two pipeline ranks both keep a copy, as Megatron does.
    ``layers``, (C, K) or by candidate (n, C, K), includes multi-token prediction layers; their projections and
    norms, and the copy of the embedding that they look up on another rank than the first, are added here.
    """
    tensor = batch.tensor.astype(np.float64)
    kinds = architecture.layer_kinds
    common = np.stack([_layer(architecture, kind, tensor) for kind in kinds], axis=1)
    experts = np.zeros_like(tensor)
    if (moe := architecture.experts) is not None:
        experts = moe.count * architecture.expert_parameters() / batch.expert_block
    stages = int(batch.pipeline[0])
    held = layers.reshape(*layers.shape[:-2], -1, stages, len(kinds)).sum(axis=-3)
    ranks = np.asarray(sum(common[:, kind, None] * held[..., kind] for kind in range(len(kinds))))
    vocabulary = architecture.vocabulary * architecture.hidden / tensor
    apart = (last := batch.last_column(layers.shape[-2]) % stages) > 0
    tables = np.zeros_like(ranks)
    tables[:, 0] += vocabulary + architecture.learned_positions * architecture.hidden
    if apart or not architecture.tied_embeddings:
        tables[:, last] += vocabulary
    if architecture.prediction_layers and apart and not architecture.tied_embeddings:
        tables[:, last] += vocabulary
    ranks += tables
    ranks[:, last] += architecture.norm_vectors * architecture.hidden
    norms = PREDICTION_NORMS * architecture.norm_vectors * architecture.hidden
    projection = architecture.prediction_projection_parameters() / tensor
    ranks[:, last] += architecture.prediction_layers * (projection + norms)
    return LocalParameters(
        layers=common,
        largest_layer=(common + experts[:, None] * [kind.sparse for kind in kinds]).max(axis=1),
        experts=experts,
        common=ranks,
        routed=sparse_counts(architecture, held) * experts[:, None],
        tables=tables,
    )


def _layer(architecture: Architecture, kind: LayerKind, tensor: FloatArray) -> FloatArray:
    """(n,) parameters of a layer of ``kind`` that one of ``tensor`` (n,) ranks holds beside its routed experts."""
    mixer = _split(architecture.mixer_parameters(kind.mixer), repeated_mixer(architecture, kind.mixer), tensor)
    return mixer + _split(architecture.mlp_parameters(kind.mlp), repeated_mlp(architecture, kind.mlp), tensor)


def sparse_counts(architecture: Architecture, layers: IntArray) -> IntArray:
    """(C,) or (n, C) layers with experts of chunks that hold ``layers``, (C, K) or (n, C, K), of each kind."""
    return np.asarray(layers @ np.array([kind.sparse for kind in architecture.layer_kinds], dtype=np.int64))


def by_rank(chunks: FloatArray, stages: int) -> FloatArray:
    """(n, C) values of chunks summed over the chunks of each pipeline rank: (n, P)."""
    return np.asarray(chunks.reshape(len(chunks), -1, stages).sum(axis=1))


def data_ranks(batch: CandidateBatch) -> tuple[FloatArray, FloatArray]:
    """(n,) ranks that exchange gradients: of common parameters, and of routed experts.

    Context ranks hold the same parameters, so that they count as data ranks; routed experts have a group of their
    own, the ``tensor * context * data / (expert * expert_tensor)`` ranks that hold the same ones (Megatron-Core).
    """
    common = (batch.data * batch.context).astype(np.float64)
    return common, np.maximum(batch.tensor * common / batch.expert_block, 1.0)


def transfers_cross(batch: CandidateBatch, domain: int) -> BoolArray:
    """(n,) whether pipeline neighbours sit in different domains of ``domain`` GPUs.

    They stay together where a whole replica does and its pipeline ranks are consecutive, or where all GPUs do.
    """
    replica = batch.tensor * batch.context * batch.pipeline
    consecutive = batch.rank_order == ORDER_CODES.index(RankOrder.PIPELINE_BEFORE_DATA)
    together = np.where(consecutive, replica, replica * batch.data) <= domain
    return np.asarray((batch.pipeline > 1) & ~together)


def sharing_ranks(batch: CandidateBatch, framework: Framework) -> tuple[FloatArray, FloatArray]:
    """(n,) those of ``data_ranks`` that share out optimizer states, or parameters: 1 without sharding.

    Instances of a sharded optimizer divide both groups (Megatron-Core's ``intra_distributed_optimizer_instance``).
    """
    sharded, instances = ~is_sharded(batch, Sharding.NONE), np.ones(len(batch))
    ranks, expert_ranks = data_ranks(batch)
    if framework.sharding_ranks:
        counts, row = np.unique(ranks.astype(np.int64), return_inverse=True)
        copies = np.array([optimizer_instances(count, framework.sharding_ranks) for count in counts.tolist()])
        instances = np.where(is_sharded(batch, Sharding.OPTIMIZER), copies[row.reshape(-1)], 1.0)
    instances = np.where(batch.sharding_ranks > 0, ranks / np.maximum(batch.sharding_ranks, 1), instances)
    common, routed = (np.where(sharded, np.maximum(group / instances, 1.0), 1.0) for group in (ranks, expert_ranks))
    return common, routed


def owned_parameters(batch: CandidateBatch, parameters: LocalParameters, framework: Framework) -> FloatArray:
    """(n, P) parameters whose optimizer states each GPU owns after sharding."""
    common_ranks, routed_ranks = (ranks[:, None] for ranks in sharing_ranks(batch, framework))
    return np.asarray(parameters.common / common_ranks + parameters.routed / routed_ranks)


def _split(total: int, repeated: int, tensor: FloatArray) -> FloatArray:
    return (total - repeated) / tensor + repeated


def repeated_mixer(architecture: Architecture, mixer: Mixer) -> int:
    """Parameters of a mixer that every tensor rank holds in full: norms, what compresses, and an indexer."""
    if mixer is Mixer.NONE:
        return 0
    h, norm = architecture.hidden, architecture.norm_parameters()
    if mixer is Mixer.LINEAR and (linear := architecture.linear_attention) is not None:
        return norm + linear.repeated + h * (linear.gate_rank + linear.decay_rank)
    repeated = norm
    if mixer in ATTENDING:
        repeated += architecture.query_key_norm_parameters
        if (mla := architecture.latent_attention) is not None:
            repeated += mla.compressing(h)
        if (sparse := architecture.sparse_attention) is not None:
            repeated += sparse.matrices(h, mla.query_rank if mla else 0) + sparse.small
    if mixer in (Mixer.STATE_SPACE, Mixer.PARALLEL) and (space := architecture.state_space) is not None:
        repeated += space.repeated
    return repeated


def repeated_mlp(architecture: Architecture, mlp: Mlp) -> int:
    """Parameters of an MLP that every tensor rank holds in full: norms, the router, compression before experts."""
    norm, experts = architecture.norm_parameters(), architecture.experts
    if mlp is Mlp.EXPERTS and experts is not None:
        return architecture.hidden * (experts.count + 2 * experts.latent) + norm
    return norm if mlp is Mlp.DENSE else 0
