"""Loads of experts into slots, one after the other, from a running map of a layer to another.

Letters: G ranks, s slots of a rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cluster_models.errors import InvalidInput
from solver.candidates import IntArray
from solver.experts.layout import ExpertLayout


@dataclass(frozen=True, slots=True)
class Move:
    """Slot ``slot`` of a layer, on ``rank``, loads expert ``new`` from rank ``source`` in the place of ``old``.

    ``buffered``: ``old`` has no other copy yet, so that ``new`` waits in a spare buffer until one of the next moves
    of the layer has read ``old``.
    """

    layer: int
    slot: int
    rank: int
    old: int
    new: int
    source: int
    same_node: bool
    buffered: bool = False


@dataclass(frozen=True, slots=True)
class MoveCosts:
    """Cost of moving one expert of one layer.

    ``expert_bytes``: its weights, in training its gradients and optimizer state too.  Seconds per byte of what one
    rank sends and receives inside its node, and between nodes.  Raises ``InvalidInput``.
    """

    expert_bytes: float
    inside_s_per_byte: float
    between_s_per_byte: float

    def __post_init__(self) -> None:
        for name, value in (
            ("expert_bytes", self.expert_bytes),
            ("inside_s_per_byte", self.inside_s_per_byte),
            ("between_s_per_byte", self.between_s_per_byte),
        ):
            if not (math.isfinite(value) and value > 0):
                raise InvalidInput(f"moves.{name}", value, "must be a number above 0")

    def seconds(self, moves: Sequence[Move], ranks: int) -> float:
        """Until the busiest rank has sent and received its part; ranks do both at once, one expert at a time."""
        sent, received = np.zeros(ranks), np.zeros(ranks)
        for move in moves:
            seconds = self.expert_bytes * (self.inside_s_per_byte if move.same_node else self.between_s_per_byte)
            sent[move.source] += seconds
            received[move.rank] += seconds
        return float(max(sent.max(), received.max()))


@dataclass(slots=True)
class _Running:
    """A layer while its experts move: what is in each slot, in spare buffers, and how much each rank sent."""

    layout: ExpertLayout
    slots: list[int]
    sent: Counter[int]
    buffers: dict[int, int] = field(default_factory=dict)

    def rank_of(self, slot: int) -> int:
        return slot // self.layout.slots_per_rank

    def holders(self, expert: int) -> list[int]:
        """Ranks with a copy, in a slot or in a buffer."""
        found = {self.rank_of(slot) for slot, held in enumerate(self.slots) if held == expert}
        return sorted(found | {self.rank_of(slot) for slot, held in self.buffers.items() if held == expert})

    def source(self, expert: int, rank: int) -> int:
        """The nearest rank with a copy, of these the one that sent least so far."""
        width = self.layout.ranks_per_node
        return min(self.holders(expert), key=lambda held: (held // width != rank // width, self.sent[held], held))

    def free(self, slot: int) -> bool:
        """Whether a slot may be overwritten: its expert has another copy."""
        return len(self.holders(self.slots[slot])) > 1

    def waiting(self) -> Counter[int]:
        """Buffers in use, by rank."""
        return Counter(self.rank_of(slot) for slot in self.buffers)

    def settle(self) -> None:
        """Let buffered experts take their slots once what lies there has another copy."""
        for slot, expert in list(self.buffers.items()):
            if self.free(slot):
                self.slots[slot] = expert
                del self.buffers[slot]


def kept_in_place(before: Sequence[int], after: IntArray, layout: ExpertLayout) -> list[int]:
    """(S,) the map ``after`` (G, s), with experts that stay on their rank in the slots they have ``before``."""
    slots = list(before)
    size = layout.slots_per_rank
    for rank, held in enumerate(after.tolist()):
        span = range(rank * size, (rank + 1) * size)
        fresh = [expert for expert in held if expert not in {before[slot] for slot in span}]
        for slot in span:
            if before[slot] not in held:
                slots[slot] = fresh.pop(0)
    return slots


def ordered_moves(
    layer: int, before: Sequence[int], after: Sequence[int], layout: ExpertLayout, sent: Counter[int]
) -> tuple[list[Move], int]:
    """Moves from slots ``before`` to ``after``, each expert with a copy at any moment; spare buffers of a rank.

    Slots whose expert has another copy come first; where there is none, an expert waits in a spare buffer, which
    lets the cycle that it belongs to go on.  ``sent``: experts sent so far by each rank, which is counted on.
    """
    running = _Running(layout, list(before), sent)
    left = [slot for slot, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    moves: list[Move] = []
    spare = 0
    while left:
        slot = next((slot for slot in left if running.free(slot)), None)
        chosen = _first_buffered(running, left) if slot is None else slot
        moves.append(_moved(running, layer, chosen, after[chosen], buffered=slot is None))
        left.remove(chosen)
        spare = max(spare, *running.waiting().values(), 0)
        running.settle()
    return moves, spare


def _first_buffered(running: _Running, left: Sequence[int]) -> int:
    """A slot whose new expert waits in a buffer, of a rank with the fewest of them."""
    waiting = running.waiting()
    return min(left, key=lambda slot: (waiting[running.rank_of(slot)], slot))


def _moved(running: _Running, layer: int, slot: int, new: int, *, buffered: bool) -> Move:
    rank = running.rank_of(slot)
    source = running.source(new, rank)
    width = running.layout.ranks_per_node
    move = Move(
        layer,
        slot,
        rank,
        running.slots[slot],
        new,
        source,
        same_node=source // width == rank // width,
        buffered=buffered,
    )
    running.sent[source] += 1
    if buffered:
        running.buffers[slot] = new
    else:
        running.slots[slot] = new
    return move
