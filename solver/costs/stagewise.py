"""Costs and memory of candidates whose pipeline ranks run on GPUs of different kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.costs.memory import StageMemoryParts
from solver.costs.step_costs import CrossTraffic, StepCosts

_BY_CANDIDATE = frozenset(
    {"transfer_bytes", "reduce_passes", "gather_passes", "gather_ranks", "expert_gather_ranks", "tail_transfers"}
)


def stagewise_costs(by_kind: Sequence[StepCosts], stage_kind: IntArray) -> StepCosts:
    """Costs of candidates whose pipeline rank ``s`` runs on kind ``stage_kind[i, s]`` (n, P).

    ``by_kind``: the costs of the same candidates were all of their GPUs of one kind.  A GPU sends the same
    whatever its kind; of the compute that hides crossing traffic, each pass counts that of the kind which hides
    least.
    """
    if len(by_kind) == 1:
        return by_kind[0]
    values: dict[str, Any] = {}
    for column in fields(StepCosts):
        parts = [getattr(costs, column.name) for costs in by_kind]
        if isinstance(parts[0], CrossTraffic):
            values[column.name] = _traffic(parts, stage_kind)
        elif column.name in _BY_CANDIDATE:
            values[column.name] = np.maximum.reduce(parts)
        else:
            values[column.name] = by_stage(parts, stage_kind)
    return StepCosts(**values)


def stagewise_memory(by_kind: Sequence[StageMemoryParts], stage_kind: IntArray) -> StageMemoryParts:
    """The memory account of the same candidates, each pipeline rank's by its own kind."""
    if len(by_kind) == 1:
        return by_kind[0]
    names = [column.name for column in fields(StageMemoryParts)]
    return StageMemoryParts(**{name: by_stage([getattr(m, name) for m in by_kind], stage_kind) for name in names})


def by_stage(parts: Sequence[FloatArray], stage_kind: IntArray) -> FloatArray:
    """(n, C) or (n, P): of ``parts``, one array a kind, each pipeline rank's columns from its own kind."""
    kinds = np.tile(stage_kind, (1, parts[0].shape[1] // stage_kind.shape[1]))
    found = parts[0]
    for kind, part in enumerate(parts[1:], start=1):
        found = np.where(kinds == kind, part, found)
    return found


def _traffic(parts: Sequence[CrossTraffic], stage_kind: IntArray) -> CrossTraffic:
    def each(pick: Callable[[CrossTraffic], FloatArray]) -> list[FloatArray]:
        return [pick(part) for part in parts]

    return CrossTraffic(
        message_bytes=np.maximum.reduce(each(lambda part: part.message_bytes)),
        forward_count=by_stage(each(lambda part: part.forward_count), stage_kind),
        backward_count=by_stage(each(lambda part: part.backward_count), stage_kind),
        weight_count=by_stage(each(lambda part: part.weight_count), stage_kind),
        forward_hidden_s=np.minimum.reduce(each(lambda part: part.forward_hidden_s)),
        backward_hidden_s=np.minimum.reduce(each(lambda part: part.backward_hidden_s)),
        window=parts[0].window,
    )
