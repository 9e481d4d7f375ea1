"""Parts of a serving workload that may be absent: speculation, adapters, counts of a router."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.documents.reading import Count, Document, Text, WholeNumber
from app.documents.routing import MOST_WORKLOADS, RoutedWorkloadDocument
from app.documents.values import ValueDocument
from cluster_models.errors import InvalidInput, InvalidWorkload
from cluster_models.serving.adapters import MOST_ADAPTERS, MOST_RANK, ServedAdapters
from cluster_models.serving.routing import MOST_REDUNDANT, ServedRouting
from cluster_models.serving.workload import MOST_DRAFTS


class SpeculationDocument(Document):
    """Multi-token prediction, or drafts of a small model."""

    draft_tokens: Annotated[Count, Field(le=MOST_DRAFTS)] = Field(
        description="Tokens drafted a step.", examples=[2]
    )
    accepted_tokens: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = Field(
        description="Drafted tokens that stay on average, as measured.", examples=[1.2]
    )


class ServedAdaptersDocument(ValueDocument[ServedAdapters]):
    """Low-rank adapters beside all linear layers of a dense model, each named by as many requests."""

    count: Annotated[Count, Field(le=MOST_ADAPTERS)] = Field(
        description="Adapters that requests name.", examples=[64]
    )
    rank: Annotated[Count, Field(le=MOST_RANK)] = Field(description="Rank of each.", examples=[16])
    resident: Count | None = Field(
        None,
        description="Adapters on the GPUs of a replica at a time, others come from the host; absent: all.",
        examples=[16],
    )

    def to_value(self) -> ServedAdapters:
        """The domain value; raises ``InvalidWorkload``."""
        return ServedAdapters(**self.attributes())


class ServedRoutingDocument(Document):
    """Counts of a router by phase, for which the planner places experts on every number of ranks."""

    workloads: Annotated[list[RoutedWorkloadDocument], Field(min_length=1, max_length=MOST_WORKLOADS)] | None = (
        Field(
            None, description="Counts; those with prefill or decode in their name are of that phase, else of both."
        )
    )
    stored: Text | None = Field(
        None, description="In their place: the name of counts stored in the service.", examples=[None]
    )
    redundant_experts: Annotated[WholeNumber, Field(ge=0, le=MOST_REDUNDANT)] = Field(
        0, description="Slots of a layer beyond one for each expert, for copies.", examples=[32]
    )

    def to_value(self) -> ServedRouting:
        """The domain value; raises ``InvalidWorkload``."""
        if self.workloads is None:
            given = "routing" if self.stored is None else "routing.stored"
            problem = "has no counts" if self.stored is None else "names counts that only a service has"
            remedy = "give workloads" if self.stored is None else "give workloads, or ask a service (--server)"
            raise InvalidWorkload(f"workload.{given}", self.stored, problem, remedy)
        if self.stored is not None:
            raise InvalidWorkload(
                "workload.routing.stored", self.stored, "conflicts with workloads", "leave one out"
            )
        found = []
        for index, each in enumerate(self.workloads):
            try:
                found.append(each.to_workload().plain(1.0))
            except InvalidInput as error:
                field = f"workload.routing.workloads[{index}].{error.field.removeprefix('routing.')}"
                raise InvalidWorkload(field, error.value, error.problem, error.remedy) from error
        return ServedRouting(tuple(found), self.redundant_experts)

    @classmethod
    def from_value(cls, value: ServedRouting) -> ServedRoutingDocument:
        """The document of the counts."""
        workloads = [RoutedWorkloadDocument.from_workload(each.counted()) for each in value.workloads]
        return cls(workloads=workloads, redundant_experts=value.redundant_experts)
