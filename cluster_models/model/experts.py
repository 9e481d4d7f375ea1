"""The mixture-of-experts part of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cluster_models.errors import InvalidModel
from cluster_models.model.mixers import MOST_WIDTH, check_sizes

MOST_EXPERTS: Final = 100_000
MOST_LAYERS: Final = 2_000
"""Far beyond any model; keeps a slip of the pen from costing minutes."""


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture-of-experts part of a model.

    ``dense_layers`` leading layers keep a dense MLP; afterwards every ``layer_period``-th layer is sparse,
    the first of them at index ``dense_layers``.  ``shared_hidden`` is the total hidden width of always-active
    experts (0 = none) and ``shared_gate`` says that a learned scalar gate weighs them (Qwen2-MoE).
    ``router_bias``: the router has one bias per expert (gpt-oss; DeepSeek-V3's correction bias).
    ``router_groups``: consecutive experts form so many equal groups, and all experts of a token lie in
    ``active_groups`` of them (DeepSeek-V3's node-limited routing, arXiv 2412.19437, section 2.1.2); 1 = no limit.
    ``latent``: width to which tokens are projected before they travel to routed experts, and from which they are
    projected back (Nemotron 3 Super's latent experts); 0 = the model's own.
    """

    count: int
    active: int
    hidden: int
    shared_hidden: int = 0
    dense_layers: int = 0
    layer_period: int = 1
    shared_gate: bool = False
    router_bias: bool = False
    router_groups: int = 1
    active_groups: int = 1
    latent: int = 0

    def __post_init__(self) -> None:
        check_sizes(
            self,
            "experts",
            count=(1, MOST_EXPERTS),
            hidden=(1, MOST_WIDTH),
            shared_hidden=(0, MOST_WIDTH),
            dense_layers=(0, MOST_LAYERS),
            layer_period=(1, MOST_LAYERS),
            router_groups=(1, self.count),
            active_groups=(1, self.router_groups),
            active=(1, self.count),
            latent=(0, MOST_WIDTH),
        )
        if self.count % self.router_groups:
            raise InvalidModel(
                "model.experts.router_groups", self.router_groups, f"must divide the {self.count} experts"
            )
