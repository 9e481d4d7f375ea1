"""Inputs of the serving planner."""

from __future__ import annotations

from dataclasses import dataclass, field

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.serving.goal import ServedModel, ServingGoal


@dataclass(frozen=True, slots=True)
class ServingProblem:
    """A snapshot of a cluster, the models to serve on it, and the goal."""

    snapshot: ClusterSnapshot
    models: tuple[ServedModel, ...]
    goal: ServingGoal = field(default_factory=ServingGoal)

    def __post_init__(self) -> None:
        if not self.models:
            raise InvalidInput("models", [], "names no model to serve", "give at least one")
