"""Plans and clusters as lines of a list."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.db.status import PlanStatus
from app.presentation.figures import NOT_KNOWN, count, percent, seconds
from app.services.calibration.calibrations import CalibrationRecord
from app.services.clusters.clusters import ClusterRecord
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
    step: str
    configuration: str
    gap: str

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


def plan_line(plan: PlanRecord) -> PlanLine:
    """A plan by its model, its cluster and how far it is."""
    asked = f"asked {_moment(plan.created_at)}"
    if plan.started_at and plan.finished_at:
        asked += f", searched for {(plan.finished_at - plan.started_at).total_seconds():.1f} s"
    newest = plan.progress
    return PlanLine(
        id=plan.id,
        kind=str(plan.kind),
        model=plan.model_name,
        cluster=plan.cluster_name,
        status=str(plan.status),
        mood=_MOODS[plan.status],
        asked=asked,
        step=seconds(newest.incumbent_s) if newest else NOT_KNOWN,
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
