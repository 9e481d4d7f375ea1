"""The routing that a plan or prediction takes into account, from files on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.documents.routing import planned_loads
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import ExpertLoads


@dataclass(frozen=True, slots=True)
class Routed:
    """Options as typed: files of routing statistics, ``NAME=WEIGHT`` of their workloads, the order of experts."""

    files: tuple[Path, ...] = ()
    weights: tuple[str, ...] = ()
    keep_order: bool = False

    def loads(self, model: Architecture) -> tuple[ExpertLoads, ...]:
        """The counts for a planning problem; raises ``InvalidInput``."""
        weights = self.weight_of_each()
        if not self.files:
            return ()
        from app.routing.reading import loads_of  # noqa: PLC0415 - most plans read no routing

        experts = model.experts.count if model.experts else None
        return planned_loads(loads_of(*self.files, experts=experts), weights, model)

    def weight_of_each(self) -> dict[str, float] | None:
        """Weights of workloads by name; ``None`` means all alike.  Raises ``InvalidInput``."""
        if self.weights and not self.files:
            raise InvalidInput("--routing-weight", self.weights[0], "weighs a workload", "give --routing as well")
        found: dict[str, float] = {}
        for text in self.weights:
            name, equals, weight = text.rpartition("=")
            try:
                found[name] = float(weight)
            except ValueError:
                name = ""
            if not equals or not name:
                raise InvalidInput("--routing-weight", text, "is not a weight", "write it like prefill=2")
        return found or None
