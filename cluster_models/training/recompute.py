"""Activations that are thrown away and computed again: modules of every layer, or some layers of each chunk.

Names and meaning are those of Megatron-Core: ``--recompute-modules`` with ``--recompute-granularity selective``,
and ``--recompute-num-layers`` with ``--recompute-granularity full --recompute-method block``.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final

from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidConfiguration
from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import Mlp
from cluster_models.training.framework_choices import CudaGraphs, Float8Scaling, SelectiveRecompute
from cluster_models.training.frameworks import Framework
from cluster_models.training.workload import Recompute, RecomputeModule

MODULES_BY_NAME: Final = {module.value: module for module in RecomputeModule}
INSIDE_MOE: Final = frozenset({RecomputeModule.MOE_ACTIVATION, RecomputeModule.SHARED_EXPERTS})
"""Modules that ``RecomputeModule.MOE`` runs again with the rest."""
_SINCE: Final = MappingProxyType(
    {module: 14 if module is RecomputeModule.SHARED_EXPERTS else 12 for module in RecomputeModule}
)
"""Release of Megatron-Core (a minor number) from which a module may be named: ``allowed_modules`` in
``megatron/core/transformer/transformer_config.py`` at the tags core_v0.12.0 to core_v0.19.0."""
_QUANTISED_SINCE: Final = 14
"""The same from which norms and activations are recomputed in 8 bits, unless scales are delayed."""
_QUANTISED: Final = frozenset({Precision.FP8, Precision.MXFP8, Precision.NVFP4})
_GROUPED: Final = frozenset(Precision) - {Precision.FP16, Precision.FP32}
"""Formats in which Transformer Engine's grouped products of experts run, the condition of ``moe_act``."""
_GRAPHS_INSIDE_SINCE: Final = 16
"""The same from which recomputed modules may lie inside a CUDA graph of attention."""


def recomputable_modules(
    architecture: Architecture, framework: Framework, precision: Precision
) -> frozenset[RecomputeModule]:
    """The modules of a model that a framework can run again one by one.

    Queries and keys that an indexer picks from are not projected up.  Without the whole sparse MLP where its router
    is captured in a CUDA graph (``moe recompute is not supported with moe_router CUDA graph``); before 0.16 graphs
    of attention excluded what lies in it.
    """
    kinds, experts = architecture.layer_kinds, architecture.experts
    attends = any(kind.attends for kind in kinds)
    latent = attends and architecture.latent_attention is not None
    present = {
        RecomputeModule.CORE_ATTENTION: attends,
        RecomputeModule.LAYER_NORM: latent or experts is not None,
        RecomputeModule.MLA_UP_PROJECTION: latent and architecture.sparse_attention is None,
        RecomputeModule.MLP: any(kind.mlp is Mlp.DENSE for kind in kinds),
        RecomputeModule.MOE_ACTIVATION: experts is not None and precision in _GROUPED,
        RecomputeModule.MOE: experts is not None,
        RecomputeModule.SHARED_EXPERTS: experts is not None and experts.shared_hidden > 0,
    }
    found = {each for each, is_there in present.items() if is_there and framework.megatron_core >= _SINCE[each]}
    delayed = precision is Precision.FP8 and framework.float8_scaling is Float8Scaling.DELAYED
    if precision in _QUANTISED and (delayed or framework.megatron_core < _QUANTISED_SINCE):
        found -= {RecomputeModule.LAYER_NORM, RecomputeModule.MOE_ACTIVATION}
    if framework.cuda_graphs is CudaGraphs.PARTIAL:
        found -= {RecomputeModule.MOE}
        if framework.megatron_core < _GRAPHS_INSIDE_SINCE:
            found -= {RecomputeModule.CORE_ATTENTION, RecomputeModule.MLA_UP_PROJECTION}
    return frozenset(found)


def default_modules(framework: Framework) -> frozenset[RecomputeModule]:
    """The modules of selective recomputation where none is named; empty where its parts are not modules."""
    if framework.selective_recompute is SelectiveRecompute.ATTENTION_CORE:
        return frozenset({RecomputeModule.CORE_ATTENTION})
    return frozenset()


def checked_recomputation(policy: Recompute, modules: AbstractSet[RecomputeModule], layers: int) -> None:
    """Raise ``InvalidConfiguration`` where ``modules`` or ``layers`` do not go with the policy."""
    if modules and policy is not Recompute.SELECTIVE:
        names = sorted(map(str, modules))
        raise InvalidConfiguration("recompute_modules", names, f"go with selective recomputation, not {policy}")
    if layers < 0:
        raise InvalidConfiguration("recompute_layers", layers, "must be at least 0", "0 stands for all layers")
    if layers and policy is not Recompute.FULL:
        raise InvalidConfiguration("recompute_layers", layers, f"goes with full recomputation, not {policy}")


def recomputation_words(policy: Recompute, modules: AbstractSet[RecomputeModule], layers: int) -> str:
    """The policy with its modules or layers: ``selective:layernorm+moe_act``, ``full:2``."""
    if modules:
        return f"{policy}:{'+'.join(sorted(modules))}"
    return f"{policy}:{layers}" if layers else str(policy)


def read_recomputation(text: str) -> tuple[Recompute, frozenset[RecomputeModule], int]:
    """Policy, modules and layers of such words; raises ``InvalidConfiguration``."""
    name, _, rest = text.strip().casefold().partition(":")
    if name not in tuple(Recompute):
        raise InvalidConfiguration("recompute", text, "is not a policy", f"use one of {', '.join(Recompute)}")
    policy, modules, layers = Recompute(name), frozenset[RecomputeModule](), 0
    if rest.isdecimal() and rest.isascii():
        layers = int(rest[:9])
    elif rest:
        names = rest.replace(",", "+").split("+")
        if unknown := [each for each in names if each not in MODULES_BY_NAME]:
            known = ", ".join(MODULES_BY_NAME)
            raise InvalidConfiguration("recompute", unknown[0], "is not a module", f"use some of {known}")
        modules = frozenset(MODULES_BY_NAME[each] for each in names)
    checked_recomputation(policy, modules, layers)
    return policy, modules, layers
