"""Routing statistics as the API answers them."""

from __future__ import annotations

from statistics import median
from typing import Annotated

from pydantic import Field

from app.answers.addresses import Moment
from app.documents.routing import RoutedWorkloadDocument
from app.documents.values import Computed, Given, Holds, ValueAnswer
from app.experts.statistics import WorkloadStatistics
from app.services.experts.routing import RoutingRecord, StoredRouting
from readers.frame.findings import Finding


class NoticeAnswer(ValueAnswer[Finding]):
    """Notice about a part of a file that was not taken, or taken otherwise than one may think."""

    code: str = Field(description="Stable word for programs.", examples=["layer-left-out"])
    file: Annotated[str, Holds("place.file")] = Field(description="File as sent.", examples=["decode.json"])
    place: Annotated[str, Holds("place.path")] = Field(description="Place in it.", examples=["logical_count[7]"])
    sentence: str = Field(description="The problem.", examples=["holds a negative count"])
    remedy: str = Field(description="The remedy, if there is one.", examples=["leave the layer out"])


class WorkloadAnswer(ValueAnswer[WorkloadStatistics]):
    """A workload without its counts."""

    name: str = Field(description="Name of the workload that ran.", examples=["prefill"])
    layers: list[int] = Field(description="Decoder layers that were counted.", examples=[[3, 4]])
    selections: float = Field(description="Selections counted over all layers.", examples=[1.2e8])
    tokens: float | None = Field(description="Tokens counted; null where not known.", examples=[None])
    hottest_expert_over_mean: Annotated[list[float], Holds("hottest")] = Field(
        description="For each layer, selections of its hottest expert over the mean.", examples=[[8.2, 5.9]]
    )
    median_hottest_over_mean: Annotated[float, Computed(lambda statistics: median(statistics.hottest))] = Field(
        description="Median of these over layers.", examples=[7.1]
    )
    transition_layers: int = Field(description="Layers whose transitions to the next were counted.", examples=[0])
    coactivation_layers: int = Field(description="Layers with counts of experts selected together.", examples=[0])


class RoutingSummary(ValueAnswer[RoutingRecord]):
    """Stored routing statistics without their counts."""

    name: str = Field(description="Name to place with.", examples=["deepseek-r1"])
    version: int = Field(description="Counts up with every replacement; the ETag.", examples=[1])
    experts: Annotated[int, Holds("statistics.experts")] = Field(description="Experts of a layer.", examples=[256])
    workloads: Annotated[list[WorkloadAnswer], Holds("statistics.workloads")] = Field(description="The workloads.")
    correlations: Annotated[list[list[float | None]], Holds("statistics.correlations")] = Field(
        description="How alike the loads of two workloads are, from -1 to 1, mean over layers; null where they "
        "have no layer in common.",
        examples=[[[1.0, 0.7], [0.7, 1.0]]],
    )
    created_at: Moment
    updated_at: Moment


class RoutingStored(RoutingSummary):
    """Statistics just stored, with notices about parts of their files that were not taken."""

    notices: Annotated[list[NoticeAnswer], Given()] = Field(
        description="What was not taken, or taken otherwise than one may think."
    )


class RoutingAnswer(RoutingSummary):
    """Stored routing statistics."""

    counts: Annotated[list[RoutedWorkloadDocument] | None, Given()] = Field(
        description="All counts, where they were asked for."
    )

    @classmethod
    def of(cls, stored: StoredRouting, *, counts: bool) -> RoutingAnswer:
        """The answer, with counts or without."""
        documents = (
            [RoutedWorkloadDocument.from_workload(workload) for workload in stored.workloads] if counts else None
        )
        summary = RoutingSummary.from_value(stored.record)
        return cls.model_construct(**dict(summary), counts=documents)
