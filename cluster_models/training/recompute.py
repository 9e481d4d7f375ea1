"""Modules of a layer whose activations can be thrown away and computed again one by one.

Names and meaning are those of Megatron-Core's ``--recompute-modules`` (``--recompute-granularity selective``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class RecomputeModule(StrEnum):
    """A module that keeps only what it needs to run again."""

    CORE_ATTENTION = "core_attn"
    """Scores, softmax and their product with the values; all that ``Recompute.SELECTIVE`` stands for."""
    LAYER_NORM = "layernorm"
    """Outputs of both norms of a layer."""
    MLA_UP_PROJECTION = "mla_up_proj"
    """Queries, keys and values that latent attention projects up."""
    MLP = "mlp"
    """The whole MLP of dense layers."""
    MOE_ACTIVATION = "moe_act"
    """The activation between the two products of routed experts."""
    MOE = "moe"
    """The whole sparse MLP, dispatch included."""
    SHARED_EXPERTS = "shared_experts"


MODULES_BY_NAME: Final = {module.value: module for module in RecomputeModule}


@dataclass(frozen=True, slots=True)
class ActivationSettings:
    """Settings of a run for activations beside its recomputation policy.

    ``modules`` are computed again as well; ``offloaded_layers`` of every pipeline rank wait for their backward pass
    in the host's memory.
    """

    modules: frozenset[RecomputeModule] = frozenset()
    offloaded_layers: int = 0


KEEP_ALL: Final = ActivationSettings()
"""Nothing beside the policy."""
