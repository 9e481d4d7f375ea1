"""How many slots the experts of a layer get, on which ranks and nodes, and how fast those ranks are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cluster_models.errors import InvalidInput
from solver.candidates import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """``slots`` of each layer on ``ranks`` expert ranks of ``nodes`` nodes, equally many on each.

    Slot ``s`` belongs to rank ``s // slots_per_rank``, and the ranks of a node stand side by side.  ``speeds``:
    how fast each rank computes beside the others (2.0: twice as fast); empty where all are equal.
    Raises ``InvalidInput``.
    """

    ranks: int
    nodes: int
    slots: int
    speeds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for field, count in (("ranks", self.ranks), ("nodes", self.nodes), ("slots", self.slots)):
            if count < 1:
                raise InvalidInput(f"experts.{field}", count, "must be at least 1")
        if self.ranks % self.nodes:
            raise InvalidInput(
                "experts.nodes",
                self.nodes,
                f"{self.ranks} ranks cannot be split equally over {self.nodes} nodes",
                "let the nodes divide the ranks",
            )
        if self.slots % self.ranks:
            below = self.slots - self.slots % self.ranks
            raise InvalidInput(
                "experts.slots",
                self.slots,
                f"cannot be split equally over {self.ranks} ranks",
                f"take {below or self.ranks} or {below + self.ranks} slots",
            )
        if self.speeds and len(self.speeds) != self.ranks:
            raise InvalidInput(
                "experts.speeds", len(self.speeds), f"must be one speed for each of {self.ranks} ranks"
            )
        for rank, speed in enumerate(self.speeds):
            if not (math.isfinite(speed) and speed > 0):
                raise InvalidInput(f"experts.speeds[{rank}]", speed, "must be a number above 0")

    @property
    def slots_per_rank(self) -> int:
        """Slots that a rank holds of each layer."""
        return self.slots // self.ranks

    @property
    def ranks_per_node(self) -> int:
        """Expert ranks of a node."""
        return self.ranks // self.nodes

    def relative_speeds(self) -> FloatArray:
        """(ranks,) the speed of each rank beside the mean of all: their sum is the number of ranks."""
        speeds = np.array(self.speeds or (1.0,) * self.ranks)
        return np.asarray(speeds * (self.ranks / speeds.sum()))

    def rank_of_slot(self) -> IntArray:
        """(slots,) the rank to which each slot belongs."""
        return np.arange(self.slots) // self.slots_per_rank

    def node_of_slot(self) -> IntArray:
        """(slots,) the node to which each slot belongs."""
        return self.rank_of_slot() // self.ranks_per_node

    def check(self, experts: int) -> None:
        """Raise ``InvalidInput`` unless ``experts`` experts fit, each once at least and no rank with two copies."""
        if self.slots < experts:
            least = math.ceil(experts / self.ranks) * self.ranks
            raise InvalidInput(
                "experts.slots", self.slots, f"{experts} experts need a slot each", f"take {least} slots or more"
            )
        if self.slots_per_rank > experts:
            raise InvalidInput(
                "experts.slots",
                self.slots,
                f"{self.slots_per_rank} slots of a rank cannot hold {experts} experts without holding one twice",
                f"take at most {experts * self.ranks} slots",
            )
