"""Which exchanges of context ranks a model, a framework and a workload allow (docs/context_parallel.md).

The rules are Transformer Engine's (``attn_forward_func_with_cp``, releases up to 2.9).
"""

from __future__ import annotations

from typing import Final

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import Mixer
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.workload import TrainingWorkload

RING: Final = 0
GATHERED: Final = -1
"""Codes of exchanges without an all-to-all; others are the number of ranks that take part in one."""


def exchange_code(exchange: ContextExchange, head_ranks: int, context: int) -> int:
    """The code of an exchange of ``context`` ranks; ``head_ranks`` exchange heads in a hierarchical one."""
    sizes = {
        ContextExchange.RING: RING,
        ContextExchange.GATHER: GATHERED,
        ContextExchange.ALL_TO_ALL: context,
        ContextExchange.HIERARCHICAL: head_ranks,
    }
    return sizes[exchange] if context > 1 else RING


def exchange_of(code: int, context: int) -> tuple[ContextExchange, int]:
    """The exchange of a code, and the ranks that exchange heads where it is hierarchical, else 0."""
    if code in (RING, GATHERED):
        return (ContextExchange.GATHER if code == GATHERED else ContextExchange.RING), 0
    return (ContextExchange.ALL_TO_ALL, 0) if code == context else (ContextExchange.HIERARCHICAL, code)


def exchange_refusal(architecture: Architecture, workload: TrainingWorkload, exchange: ContextExchange) -> str:
    """Why context ranks cannot exchange so whatever the degrees, as a clause; empty where they can."""
    framework = workload.framework
    if exchange not in framework.context_exchanges:
        return f"{framework.name} has no {exchange} exchange of context ranks"
    if not framework.megatron_core:
        return ""
    rings = exchange in (ContextExchange.RING, ContextExchange.HIERARCHICAL)
    packed = workload.lengths is not None and workload.lengths.packing.joins
    reasons = {
        "does not go with windows of attention": rings and Mixer.WINDOW in architecture.mixer_set,
        "does not go with attention sinks": exchange is not ContextExchange.ALL_TO_ALL
        and architecture.attention_sinks,
        "does not go with latent attention": not rings and architecture.latent_attention is not None,
        "is not planned behind an indexer": exchange is not ContextExchange.RING
        and architecture.sparse_attention is not None,
        "is not planned for packed documents": exchange is not ContextExchange.RING and packed,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def usable_exchanges(architecture: Architecture, workload: TrainingWorkload) -> tuple[ContextExchange, ...]:
    """The exchanges allowed that model and framework have."""
    allowed = dict.fromkeys(workload.context_exchange)
    return tuple(each for each in allowed if not exchange_refusal(architecture, workload, each))


def shares_heads(architecture: Architecture, *, tensor: int, ranks: int) -> bool:
    """Whether ``ranks`` context ranks share out the heads, and key/value heads, of a tensor rank evenly."""
    attending = (architecture.of_mixer(kind.mixer) for kind in architecture.layer_kinds if kind.attends)
    return all(
        own.heads % (tensor * ranks) == 0
        and (architecture.latent_attention is not None or own.kv_heads % (tensor * ranks) == 0)
        for own in attending
    )


def exchange_codes(
    architecture: Architecture, workload: TrainingWorkload, *, tensor: int, context: int, together: int
) -> list[int]:
    """Codes of the exchanges to try; of hierarchical ones the most ranks that share ``together`` GPUs.

    Fewer of them leave a longer ring over the same links.  Every size is tried where it is pinned.
    """
    pinned = workload.pinned.get("head_ranks", 0)
    if context == 1:
        return [] if pinned else [RING]
    found, usable = [], usable_exchanges(architecture, workload)
    if ContextExchange.RING in usable:
        found.append(RING)
    if ContextExchange.GATHER in usable:
        found.append(GATHERED)
    if ContextExchange.ALL_TO_ALL in usable and shares_heads(architecture, tensor=tensor, ranks=context):
        found.append(context)
    if ContextExchange.HIERARCHICAL in usable:
        sizes = [
            size
            for size in range(2, context)
            if context % size == 0 and shares_heads(architecture, tensor=tensor, ranks=size)
        ]
        forbidden = workload.forbidden.get("head_ranks", ())
        sizes = [size for size in sizes if size not in forbidden and (pinned or size * tensor <= together)]
        found = [size for size in sizes if size == pinned] if pinned else found + sizes[-1:]
    return found if not pinned or ContextExchange.HIERARCHICAL in usable else []
