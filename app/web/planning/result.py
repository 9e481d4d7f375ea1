"""The page of a finished plan: its report, and the drawings and grids that only a page has."""

from __future__ import annotations

from dataclasses import dataclass

from app.presentation.configuration import Degree, degrees, settings_line
from app.presentation.crossings import busiest_sentence, crossing_sentence, crossing_stages, places
from app.presentation.experts import ExpertPage, expert_page
from app.presentation.figures import gib
from app.presentation.plan import Pairs, PlanReport, plan_report, provenance
from app.presentation.plan_lead import lead_sentence, subject, things_to_know
from app.presentation.refusal import reason_of
from app.presentation.sentences import sentences
from app.web.drawing import Drawing
from app.web.planning.memory import memory_bars
from app.web.planning.rack_map import rack_map
from app.web.planning.schedule import Schedule, Window, schedule
from app.web.planning.seats import SeatGrid, seat_grid
from app.web.planning.stage_times import stage_times
from app.web.planning.step_axis import step_axis
from app.web.planning.step_time import time_bar
from app.web.planning.trade_offs import trade_off_cloud
from app.web.planning.waterfall import waterfall
from cluster_models.cluster.topology import Cluster
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.training.rank_costs import MEMORY_PARTS
from cluster_models.training.workload import TrainingWorkload


@dataclass(frozen=True, slots=True)
class Result:
    """A plan as words, tables and drawings."""

    report: PlanReport
    subject: str
    lead: str
    to_know: tuple[str, ...]
    crossing: str
    axis: Drawing
    racks: Drawing
    waterfalls: tuple[Drawing | None, ...]
    """How each alternative came to lose, in their order; ``None`` for one that was not placed."""
    trade_offs: Drawing | None
    degrees: tuple[Degree, ...]
    seats: SeatGrid
    unused_nodes: tuple[str, ...]
    memory_bars: Drawing
    memory_parts: tuple[str, ...]
    time_bar: Drawing
    """Parts of the step by stage, or of the busiest alone in old plans."""
    has_stages: bool
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


def result(plan: Plan, workload: TrainingWorkload, cluster: Cluster, window: Window) -> Result:
    """The page of ``plan``, made for ``workload`` on ``cluster``."""
    where = places(cluster, plan.placement.hosts)
    everywhere = places(cluster, [node.name for node in cluster.nodes])
    crossing = crossing_stages(plan, where)
    crossing_words = crossing_sentence(crossing, where, plan.configuration.degrees.pipeline)
    by_stage = stage_times(plan.stages, plan.time.step_s)
    return Result(
        report=plan_report(plan, workload),
        subject=subject(plan, workload),
        lead=lead_sentence(plan, workload),
        to_know=things_to_know(plan, crossing_words if any(crossing.values()) else ""),
        crossing=crossing_words,
        axis=step_axis(plan, workload.objective),
        racks=rack_map(plan, where, crossing),
        waterfalls=tuple(
            None
            if other.time is None
            else waterfall(
                other.time, plan.time, str(other.configuration.degrees), busiest_sentence(other, everywhere)
            )
            for other in plan.alternatives
        ),
        trade_offs=trade_off_cloud(plan),
        degrees=degrees(plan.configuration.degrees),
        seats=seat_grid(plan.configuration, plan.placement, where, plan.mixed_kinds),
        unused_nodes=plan.unused_nodes,
        memory_bars=memory_bars(plan.memory, _cards(plan, cluster)),
        memory_parts=tuple(MEMORY_PARTS.values()),
        time_bar=by_stage or time_bar(plan.time),
        has_stages=by_stage is not None,
        schedule=schedule(plan.timeline, window),
        experts=expert_page(plan),
        expert_cut=plan.configuration.degrees.expert_tensor,
    )


def _cards(plan: Plan, cluster: Cluster) -> tuple[float, ...]:
    """The whole memory of the GPUs of each stage; the limit where their kind is not known any more."""
    kinds = [stage.gpu_kind for stage in plan.stages]
    return tuple(
        max(cluster.gpu_kinds[kind].memory_bytes, memory.limit_bytes)
        if kind in cluster.gpu_kinds
        else memory.limit_bytes
        for kind, memory in zip(kinds, plan.memory, strict=True)
    )


def nothing_fits(answer: NoPlan) -> NothingFits:
    """The page of a search that found nothing."""
    return NothingFits(
        reason=reason_of(answer),
        closest=str(answer.closest.degrees) if answer.closest else "",
        closest_details=settings_line(answer.closest) if answer.closest else "",
        missing=gib(answer.missing_bytes) if answer.missing_bytes is not None else "",
        remedies=sentences(answer.remedies),
        provenance=provenance(answer.provenance),
    )
