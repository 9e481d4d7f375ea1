"""Counts of a router beside a serving workload, for which experts are placed with redundant slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cluster_models.errors import InvalidWorkload
from cluster_models.routing.counts import ExpertLoads

MOST_REDUNDANT: Final = 4096
PHASES: Final = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class ServedRouting:
    """Counts of ``workloads``, named after the phase that they are of, and slots beyond one for each expert.

    Every expert rank has as many slots; what ``redundant_experts`` leave over of a multiple of the ranks is filled
    with copies as well.
    """

    workloads: tuple[ExpertLoads, ...]
    redundant_experts: int = 0

    def __post_init__(self) -> None:
        if not self.workloads:
            raise InvalidWorkload("workload.routing.workloads", [], "has no counts", "give those of one workload")
        if not 0 <= self.redundant_experts <= MOST_REDUNDANT:
            problem = f"must lie in 0..{MOST_REDUNDANT}"
            raise InvalidWorkload("workload.routing.redundant_experts", self.redundant_experts, problem)

    def __hash__(self) -> int:
        """The hash of names and the first row: counts are tens of thousands of numbers."""
        return hash((self.redundant_experts, *((each.name, each.loads[0]) for each in self.workloads)))

    def of_phase(self, phase: str) -> tuple[ExpertLoads, ...]:
        """Counts that ``phase`` (of ``PHASES``) meets: those named after it, else all."""
        return tuple(each for each in self.workloads if phase in each.name.lower()) or self.workloads

    def slots(self, ranks: int) -> int:
        """Slots of a layer on so many expert ranks together."""
        wanted = self.workloads[0].experts + self.redundant_experts
        return -(-wanted // ranks) * ranks
