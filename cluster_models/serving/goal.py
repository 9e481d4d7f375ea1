"""Goal of a serving plan: models with their requests, an objective, and the means."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cluster_models.errors import InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.serving.own_rates import OwnRates
from cluster_models.serving.workload import ServingWorkload

PINNABLE: Final = ("tensor", "pipeline", "attention_data", "expert")
"""Degrees of a worker that a goal may pin."""


class ServingMode(StrEnum):
    """Whether replicas do both phases or one each."""

    AGGREGATED = "aggregated"
    SPLIT = "split"


class ServingObjective(StrEnum):
    """Quantity that a serving plan makes as large or as small as it can, within the limits of the workloads."""

    THROUGHPUT = "throughput"
    """Most output tokens a second with exactly ``concurrency`` requests in flight; of a workload with
    ``requests_per_s``: the highest rate kept up with, at least the one given."""
    GOODPUT = "goodput"
    """Most output tokens a second at whatever load the limits allow; the load given says only how requests come."""
    GPUS = "gpus"
    """Fewest GPUs for the load."""
    COST = "cost"
    """Least list price an hour of the GPUs used for the load."""
    POWER = "power"
    """Least power (data sheet, of the GPUs used) for the load."""
    ENERGY = "energy"
    """Least mean power drawn, estimated, for the load, of ``requests_per_s``: least energy of an output token."""

    @property
    def is_maximum(self) -> bool:
        """Whether larger is better."""
        return self in (ServingObjective.THROUGHPUT, ServingObjective.GOODPUT)

    @property
    def unit(self) -> str:
        """Unit of the objective."""
        return {
            ServingObjective.GPUS: "GPUs",
            ServingObjective.COST: "USD/h",
            ServingObjective.POWER: "W",
            ServingObjective.ENERGY: "W drawn",
        }.get(self, "tokens/s")


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model, the requests to it, and what its output tokens weigh in the objective beside those of others.

    ``own`` are rates of its engine from own measurements, ``None`` for the shipped ones.
    """

    architecture: Architecture
    workload: ServingWorkload
    weight: float = 1.0
    own: OwnRates | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise InvalidWorkload("workload.weight", self.weight, "must be above 0")


@dataclass(frozen=True, slots=True)
class ServingGoal:
    """Goal of the planner, and the means that it may use.

    ``modes`` are those it may choose from; ``pinned`` gives degrees of all workers one value (``PINNABLE``).
    ``max_power_watts`` limits the power of the GPUs used: that of the data sheet, or a cap.  Boards of more power
    have the cap ``gpu_power_cap_watts``; with ``choose_power_caps`` the search gives each group one or none.
    """

    objective: ServingObjective = ServingObjective.THROUGHPUT
    modes: tuple[ServingMode, ...] = tuple(ServingMode)
    max_gpus: int | None = None
    max_power_watts: float | None = None
    gpu_power_cap_watts: float | None = None
    choose_power_caps: bool = False
    avoid_nodes: tuple[str, ...] = ()
    pinned: dict[str, int] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not self.modes:
            raise InvalidWorkload("workload.modes", [], "allows nothing", "list aggregated, split or both")
        if self.max_gpus is not None and self.max_gpus < 1:
            raise InvalidWorkload("workload.max_gpus", self.max_gpus, "must be at least 1")
        for name in ("max_power_watts", "gpu_power_cap_watts"):
            power = getattr(self, name)
            if power is not None and not (math.isfinite(power) and power > 0):
                raise InvalidWorkload(f"workload.{name}", power, "must be above 0")
        if self.choose_power_caps and self.gpu_power_cap_watts is not None:
            cap = self.gpu_power_cap_watts
            raise InvalidWorkload(
                "workload.gpu_power_cap_watts", cap, "conflicts with choose_power_caps", "leave one of them out"
            )
        unknown = sorted(set(self.pinned) - set(PINNABLE))
        if unknown:
            raise InvalidWorkload("workload.pinned", unknown, "unknown degree", f"use {', '.join(PINNABLE)}")
        for name, value in self.pinned.items():
            if value < 1:
                raise InvalidWorkload(f"workload.pinned.{name}", value, "must be at least 1")
