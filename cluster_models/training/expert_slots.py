"""Slots of experts on every rank, layer by layer, copies included."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_models.errors import InvalidConfiguration


@dataclass(frozen=True, slots=True)
class ExpertSlots:
    """``slots[i][s]``: the expert in slot ``s`` of sparse layer ``layers[i]``.

    Every expert lies in at least one slot of each layer.  Slot ``s`` belongs to expert rank ``s // (S / ranks)``;
    no rank holds two copies of one expert: the second would carry nothing.  Raises ``InvalidConfiguration``.
    """

    layers: tuple[int, ...]
    slots: tuple[tuple[int, ...], ...]
    experts: int
    ranks: int

    def __post_init__(self) -> None:
        if not self.layers or list(self.layers) != sorted(set(self.layers)) or self.layers[0] < 0:
            raise InvalidConfiguration("experts.layers", self.layers, "must be layer numbers, increasing")
        if len(self.slots) != len(self.layers):
            raise InvalidConfiguration(
                "experts.slots", len(self.slots), f"must be {len(self.layers)} rows, a layer each"
            )
        if self.ranks < 1 or len({len(row) for row in self.slots}) > 1 or self.count % self.ranks:
            raise InvalidConfiguration(
                "experts.slots",
                self.count,
                f"must be as many slots in each layer, divisible by {self.ranks} ranks",
            )
        for layer, row in zip(self.layers, self.slots, strict=True):
            self._check_row(f"experts.slots[layer {layer}]", row)

    @property
    def count(self) -> int:
        """Slots of a layer."""
        return len(self.slots[0])

    def by_rank(self, row: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The slots of each expert rank."""
        size = self.count // self.ranks
        return tuple(row[start : start + size] for start in range(0, self.count, size))

    def _check_row(self, field: str, row: tuple[int, ...]) -> None:
        if set(row) != set(range(self.experts)):
            raise InvalidConfiguration(field, row, f"must hold each of {self.experts} experts, and no other")
        for rank, held in enumerate(self.by_rank(row)):
            if len(set(held)) < len(held):
                raise InvalidConfiguration(
                    field, held, f"rank {rank} holds two copies of one expert", "put copies on different ranks"
                )
