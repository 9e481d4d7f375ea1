"""The page of a finished plan: its report, and the drawings and grids that only a page has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.presentation.configuration import Degree, degrees, settings_line
from app.presentation.experts import ExpertPage, expert_page
from app.presentation.figures import gib
from app.presentation.plan import Pairs, PlanReport, plan_report, provenance
from app.web.views.drawing import Drawing
from app.web.views.memory import memory_bars
from app.web.views.schedule import Schedule, Window, schedule
from app.web.views.seats import SeatGrid, seat_grid
from app.web.views.step_time import time_bar
from cluster_models.plan import MEMORY_PARTS, NoPlan, Plan
from cluster_models.workload import TrainingWorkload


@dataclass(frozen=True, slots=True)
class Result:
    """A plan as words, tables and drawings."""

    report: PlanReport
    degrees: tuple[Degree, ...]
    seats: SeatGrid
    unused_nodes: tuple[str, ...]
    memory_bars: Drawing
    memory_parts: tuple[str, ...]
    time_bar: Drawing
    schedule: Schedule | None
    experts: ExpertPage | None
    expert_cut: int
    """GPUs that hold a share of each expert of a rank."""


@dataclass(frozen=True, slots=True)
class NothingFits:
    """Why there is no plan, and what would make one fit."""

    reason: str
    closest: str
    closest_details: str
    missing: str
    remedies: tuple[str, ...]
    provenance: Pairs


def result(plan: Plan, workload: TrainingWorkload, leaf_of: Mapping[str, str], window: Window) -> Result:
    """The page of ``plan``; ``leaf_of`` names the leaf switch of each node that has one."""
    return Result(
        report=plan_report(plan, workload),
        degrees=degrees(plan.configuration.degrees),
        seats=seat_grid(plan.configuration, plan.placement, leaf_of, plan.mixed_kinds),
        unused_nodes=plan.unused_nodes,
        memory_bars=memory_bars(plan.memory),
        memory_parts=tuple(MEMORY_PARTS.values()),
        time_bar=time_bar(plan.time),
        schedule=schedule(plan.timeline, window),
        experts=expert_page(plan),
        expert_cut=plan.configuration.degrees.expert_tensor,
    )


def nothing_fits(answer: NoPlan) -> NothingFits:
    """The page of a search that found nothing."""
    return NothingFits(
        reason=answer.reason,
        closest=str(answer.closest.degrees) if answer.closest else "",
        closest_details=settings_line(answer.closest) if answer.closest else "",
        missing=gib(answer.missing_bytes) if answer.missing_bytes is not None else "",
        remedies=answer.remedies,
        provenance=provenance(answer.provenance),
    )
