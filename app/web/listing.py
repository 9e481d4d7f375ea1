"""Plans and clusters as lines of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from urllib.parse import quote

from sqlalchemy.orm import Session

from app.db.status import PlanStatus
from app.presentation.figures import NOT_KNOWN, count, percent, plural
from app.presentation.progress import best_words
from app.services.calibration.calibrations import CalibrationRecord
from app.services.clusters import clusters
from app.services.clusters.clusters import ClusterRecord
from app.services.errors import NotFound
from app.services.planning import serving_plans
from app.services.planning.plans import PlanRecord

_MOODS: Final = {
    PlanStatus.QUEUED: "busy",
    PlanStatus.RUNNING: "busy",
    PlanStatus.SUCCEEDED: "good",
    PlanStatus.INFEASIBLE: "warn",
    PlanStatus.FAILED: "bad",
    PlanStatus.CANCELLED: "warn",
}


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A plan in a list, and the head of its own page; ``mood`` colours the status."""

    id: str
    kind: str
    model: str
    cluster: str
    status: str
    mood: str
    asked: str
    took: str
    step: str
    configuration: str
    gap: str
    cluster_address: str = ""
    """Address of the cluster's page, on a plan's own; empty where none of that name is stored."""

    def matches(self, words: str) -> bool:
        """Whether all ``words`` occur in the line, whatever their case."""
        line = f"{self.model} {self.cluster} {self.status} {self.configuration}".casefold()
        return all(word in line for word in words.casefold().split())


@dataclass(frozen=True, slots=True)
class CalibrationLine:
    """A calibration in a list, and the head of its own page."""

    name: str
    kinds: str
    frameworks: str
    source: str
    made: str


@dataclass(frozen=True, slots=True)
class ClusterLine:
    """A cluster in a list."""

    name: str
    nodes: str
    gpus: str
    version: int


def plan_lines(session: Session, found: Sequence[PlanRecord]) -> list[PlanLine]:
    """Plans as a list shows them: those of serving with their output and GPUs."""
    serving = serving_plans.list_outputs(session, plan_ids=[plan.id for plan in found])
    lines = map(plan_line, found)
    return [
        replace(
            line,
            step=f"{count(serving[line.id].tokens_per_s)} tokens/s",
            configuration=f"on {plural(serving[line.id].gpus, 'GPU')}",
            gap=percent(serving[line.id].gap, places=2),
        )
        if line.id in serving
        else line
        for line in lines
    ]


def plan_head(session: Session, plan: PlanRecord) -> PlanLine:
    """A plan as the head of its own page names it, with the way to its cluster."""
    try:
        clusters.find_cluster(session, reference=plan.cluster_name)
    except NotFound:
        return plan_line(plan)
    return replace(plan_line(plan), cluster_address=f"/clusters/{quote(plan.cluster_name, safe='')}")


def plan_line(plan: PlanRecord) -> PlanLine:
    """A plan by its model, its cluster and how far it is."""
    took = ""
    if plan.started_at and plan.finished_at:
        took = f", searched for {(plan.finished_at - plan.started_at).total_seconds():.1f} s"
    newest = plan.progress
    return PlanLine(
        id=plan.id,
        kind=str(plan.kind),
        model=plan.model_name,
        cluster=plan.cluster_name,
        status=str(plan.status),
        mood=_MOODS[plan.status],
        asked=_moment(plan.created_at),
        took=took,
        step=best_words(newest) if newest else NOT_KNOWN,
        configuration=(newest.incumbent or "") if newest else "",
        gap=percent(newest.gap, places=2) if newest else NOT_KNOWN,
    )


def cluster_line(record: ClusterRecord) -> ClusterLine:
    """A cluster by its name and size."""
    return ClusterLine(
        name=record.name,
        nodes=count(record.node_count),
        gpus=count(record.gpu_count),
        version=record.version,
    )


def calibration_line(record: CalibrationRecord) -> CalibrationLine:
    """A calibration by its name and what it is of."""
    return CalibrationLine(
        name=record.name,
        kinds=", ".join(record.gpu_kinds) or "none",
        frameworks=", ".join(record.frameworks) or "none",
        source=record.source,
        made=_moment(record.created_at),
    )


def _moment(moment: datetime) -> str:
    return f"{moment:%d %b %Y %H:%M} UTC"
