"""Gains of other hardware or settings for a training job, and its plans on fewer GPUs (docs/sensitivity.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster_models.training.framework_choices import Overlap
from cluster_models.training.plan import Plan


class Lever(StrEnum):
    """A change of the hardware."""

    NODE = "node"
    """One more node, like the last host of the plan, in an NVLink domain of its own."""
    LINKS = "links"
    """Twice the bandwidth between nodes, that of switches' way up included; latencies stay."""
    MEMORY = "memory"
    """10 GiB more memory on each GPU."""


class Obstacle(StrEnum):
    """Why a change is not possible."""

    NODES = "nodes"
    """The cluster has as many nodes as are kept."""
    NO_SWITCH = "no_switch"
    """The framework cannot be told."""
    PRECISION = "precision"
    """The framework has it in other number formats alone."""
    SEQUENCE_PARALLEL = "sequence_parallel"
    """It takes sequence parallelism, which the workload has switched off."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Gain of a change.

    ``kept_step_s``: the step of the same plan as it is; ``plan``: the best plan found after the change, and
    ``bound_step_s`` a step that no plan there beats.  ``obstacle``: why the change is not possible; the rest is
    empty then.
    """

    change: Lever | Overlap
    kept_step_s: float | None = None
    plan: Plan | None = None
    bound_step_s: float | None = None
    obstacle: Obstacle | None = None

    @property
    def step_s(self) -> float | None:
        """The better step of the two."""
        if self.plan is None or self.kept_step_s is None:
            return self.kept_step_s
        return min(self.kept_step_s, self.plan.time.step_s)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Plans of one job by number of GPUs, and what changes would bring to the fastest.

    ``front``: the fastest plan found for each number of GPUs that was looked at, the fewest first; each is faster
    than those before it, and the last is the fastest of all.  ``too_few_gpus``: on as many or fewer there is none;
    ``None`` where the smallest number looked at has one.
    """

    front: tuple[Plan, ...]
    effects: tuple[Effect, ...]
    too_few_gpus: int | None = None

    @property
    def fastest(self) -> Plan:
        """The plan that effects are measured on."""
        return self.front[-1]
