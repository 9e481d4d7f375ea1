"""Routing statistics as the API answers them."""

from __future__ import annotations

from statistics import median

from pydantic import BaseModel, Field

from app.api.v1.answers import Moment
from app.documents.routing import RoutedWorkloadDocument
from app.experts.statistics import WorkloadStatistics
from app.services.routing import RoutingRecord, StoredRouting
from readers.frame.findings import Finding


class NoticeAnswer(BaseModel):
    """What was not taken of a file, or taken otherwise than one may think."""

    code: str = Field(description="Stable word for programs.", examples=["layer-left-out"])
    file: str = Field(description="File as sent.", examples=["decode.json"])
    place: str = Field(description="Place in it.", examples=["logical_count[7]"])
    sentence: str = Field(description="What happened.", examples=["holds a negative count"])
    remedy: str = Field(description="What to do, if anything.", examples=["leave the layer out"])

    @classmethod
    def of(cls, notice: Finding) -> NoticeAnswer:
        """The answer for a notice."""
        place = notice.place
        return cls(
            code=notice.code, file=place.file, place=place.path, sentence=notice.sentence, remedy=notice.remedy
        )


class WorkloadAnswer(BaseModel):
    """A workload without its counts."""

    name: str = Field(description="What ran.", examples=["prefill"])
    layers: list[int] = Field(description="Decoder layers that were counted.", examples=[[3, 4]])
    selections: float = Field(description="Selections counted over all layers.", examples=[1.2e8])
    tokens: float | None = Field(description="Tokens counted; null where not known.", examples=[None])
    hottest_expert_over_mean: list[float] = Field(
        description="For each layer, selections of its hottest expert over the mean.", examples=[[8.2, 5.9]]
    )
    median_hottest_over_mean: float = Field(description="Median of these over layers.", examples=[7.1])
    transition_layers: int = Field(description="Layers whose transitions to the next were counted.", examples=[0])
    coactivation_layers: int = Field(description="Layers with counts of experts selected together.", examples=[0])

    @classmethod
    def of(cls, statistics: WorkloadStatistics) -> WorkloadAnswer:
        """The answer for one."""
        return cls(
            name=statistics.name,
            layers=list(statistics.layers),
            selections=statistics.selections,
            tokens=statistics.tokens,
            hottest_expert_over_mean=list(statistics.hottest),
            median_hottest_over_mean=median(statistics.hottest),
            transition_layers=statistics.transition_layers,
            coactivation_layers=statistics.coactivation_layers,
        )


class RoutingSummary(BaseModel):
    """Stored routing statistics without their counts."""

    name: str = Field(description="Name to place with.", examples=["deepseek-r1"])
    version: int = Field(description="Counts up with every replacement; the ETag.", examples=[1])
    experts: int = Field(description="Experts of a layer.", examples=[256])
    workloads: list[WorkloadAnswer] = Field(description="The workloads.")
    correlations: list[list[float | None]] = Field(
        description="How alike the loads of two workloads are, from -1 to 1, mean over layers; null where they "
        "have no layer in common.",
        examples=[[[1.0, 0.7], [0.7, 1.0]]],
    )
    created_at: Moment
    updated_at: Moment

    @classmethod
    def from_record(cls, record: RoutingRecord) -> RoutingSummary:
        """The answer for what is stored."""
        return cls(
            name=record.name,
            version=record.version,
            experts=record.statistics.experts,
            workloads=[WorkloadAnswer.of(workload) for workload in record.statistics.workloads],
            correlations=[list(row) for row in record.statistics.correlations],
            created_at=record.created_at,
            updated_at=record.updated_at,
        )


class RoutingStored(RoutingSummary):
    """What was just stored, with what was not taken of its files."""

    notices: list[NoticeAnswer] = Field(description="What was not taken, or taken otherwise than one may think.")


class RoutingAnswer(RoutingSummary):
    """Stored routing statistics."""

    counts: list[RoutedWorkloadDocument] | None = Field(description="All counts, where they were asked for.")

    @classmethod
    def of(cls, stored: StoredRouting, *, counts: bool) -> RoutingAnswer:
        """The answer, with counts or without."""
        documents = (
            [RoutedWorkloadDocument.from_workload(workload) for workload in stored.workloads] if counts else None
        )
        summary = RoutingSummary.from_record(stored.record)
        return cls.model_construct(**dict(summary), counts=documents)
