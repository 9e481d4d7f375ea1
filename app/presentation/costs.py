"""Time of a step and memory of each stage, part by part, as rows of tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.presentation.figures import percent, seconds
from cluster_models.training.rank_costs import MEMORY_PARTS, TIME_PARTS, StageMemory, TimeBreakdown, parts_shown
from cluster_models.units import GIB


@dataclass(frozen=True, slots=True)
class PartOfStep:
    """One part of the step; ``fraction`` of the step as a number, for a bar."""

    name: str
    time: str
    share: str
    fraction: float


def time_rows(time: TimeBreakdown) -> tuple[PartOfStep, ...]:
    """Every part with its seconds and its share of the step, in the order of ``TIME_PARTS``."""
    parts = ((TIME_PARTS[field], getattr(time, field)) for field in parts_shown(time))
    return tuple(
        PartOfStep(name, seconds(part), percent(part / time.step_s), part / time.step_s) for name, part in parts
    )


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One stage; ``parts`` in the order of ``MEMORY_PARTS``.

    ``gpu_kind`` is empty where all stages run on the same.
    """

    stage: int
    gpu_kind: str
    parts: tuple[str, ...]
    total: str
    limit: str
    used: str
    fits: bool


def memory_rows(stages: Sequence[StageMemory], kinds: Sequence[str] = ()) -> tuple[MemoryRow, ...]:
    """Every part of every stage in GiB, and the share of the limit that the stage uses.

    ``kinds``: the GPU kind of each pipeline rank, to be shown where they differ.
    """
    return tuple(
        MemoryRow(
            stage=stage.stage,
            gpu_kind=kinds[stage.stage] if kinds else "",
            parts=tuple(f"{getattr(stage, field) / GIB:.2f}" for field in MEMORY_PARTS),
            total=f"{stage.total_bytes / GIB:.2f}",
            limit=f"{stage.limit_bytes / GIB:.2f}",
            used=percent(stage.total_bytes / stage.limit_bytes),
            fits=stage.total_bytes <= stage.limit_bytes,
        )
        for stage in stages
    )
