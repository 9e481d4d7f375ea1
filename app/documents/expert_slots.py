"""Where the experts of a plan lie and how evenly they share out what was counted, in users' words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from app.documents.reading import Document, NotNegative, Positive, Text, WholeNumber
from app.documents.values import Holds, ValueDocument
from cluster_models.errors import InvalidInput
from cluster_models.training.expert_balance import ExpertBalance, LayerBalance, WorkloadBalance
from cluster_models.training.expert_slots import ExpertSlots


class ExpertLayersDocument(Document):
    """Layers whose experts lie alike."""

    layers: list[WholeNumber] = Field(description="Decoder layers, from 0.", min_length=1, examples=[[3, 4, 5]])
    experts_of_rank: list[list[WholeNumber]] = Field(
        description="The experts of each expert parallel rank, in the order of their positions.",
        min_length=1,
        examples=[[[0, 1, 2, 3], [4, 5, 6, 7]]],
    )


def layer_documents(slots: ExpertSlots | None) -> list[ExpertLayersDocument]:
    """The slots, layers that are alike together; none for dense models."""
    if slots is None:
        return []
    alike: dict[tuple[int, ...], list[int]] = {}
    for layer, row in zip(slots.layers, slots.slots, strict=True):
        alike.setdefault(row, []).append(layer)
    return [
        ExpertLayersDocument(layers=layers, experts_of_rank=[list(held) for held in slots.by_rank(row)])
        for row, layers in alike.items()
    ]


def slots_of(documents: Sequence[ExpertLayersDocument]) -> ExpertSlots | None:
    """The domain value; raises ``InvalidInput`` for maps that cannot be."""
    if not documents:
        return None
    rows: dict[int, tuple[int, ...]] = {}
    for index, document in enumerate(documents):
        row = tuple(expert for held in document.experts_of_rank for expert in held)
        sizes = {(len(document.experts_of_rank), len(held)) for held in document.experts_of_rank}
        if len(sizes) > 1 or not row:
            raise InvalidInput(
                f"expert_slots[{index}].experts_of_rank",
                len(row),
                "must be equally many on each rank, one at least",
            )
        for layer in document.layers:
            if layer in rows:
                raise InvalidInput(f"expert_slots[{index}].layers", layer, "stands in two maps", "keep one")
            rows[layer] = row
    layers = tuple(sorted(rows))
    experts = max(map(max, rows.values())) + 1
    ranks = len(documents[0].experts_of_rank)
    return ExpertSlots(layers, tuple(rows[layer] for layer in layers), experts, ranks)


def without_old_map(data: object) -> object:
    """A plan from before maps had layers: its ``expert_map`` was contiguous, and says nothing more."""
    if not isinstance(data, Mapping) or "expert_map" not in data:
        return data
    old: Any = data["expert_map"]
    try:
        listed = [expert for held in old for expert in held]
    except TypeError:
        return data
    if listed != list(range(len(listed))):
        return data
    return {name: value for name, value in data.items() if name != "expert_map"}


class BalanceFields(Document):
    """Load of the slowest expert rank over the mean: under the plan's map, and under the one launchers assign."""

    imbalance: Positive = Field(description="With the plan's map; of several layers their mean.", examples=[1.05])
    contiguous: Positive = Field(description="With experts in their natural order.", examples=[2.6])


class BoundedBalanceFields(BalanceFields):
    """The same with what it can at best be."""

    least: Positive = Field(description="What no map without copies is below.", examples=[1.04])


class WorkloadBalanceDocument(BalanceFields, ValueDocument[WorkloadBalance]):
    """Load of the slowest expert rank over the mean under one workload."""

    name: Text = Field(description="The workload.", examples=["prefill"])
    weight: NotNegative = Field(description="Its share in what experts are placed for.", examples=[1.0])


class LayerBalanceDocument(BoundedBalanceFields, ValueDocument[LayerBalance]):
    """The same of one layer, weighted over the workloads."""

    layer: WholeNumber = Field(description="Decoder layer, from 0.", examples=[3])


class ExpertBalanceDocument(BoundedBalanceFields, ValueDocument[ExpertBalance]):
    """How evenly the plan's map shares out the tokens that were counted: slowest rank over the mean."""

    leaving_copies: NotNegative = Field(
        description="Where an expert group spans NVLink domains: copies of each token that the busiest of them "
        "sends or receives, in tokens that start in a domain.",
        examples=[2.4],
    )
    contiguous_step_time_s: Annotated[Positive, Holds("contiguous_step_s")] = Field(
        description="Predicted step of the same plan with experts in their natural order.", examples=[13.9]
    )
    layers: list[LayerBalanceDocument] = Field(description="The layers that were counted.")
    workloads: list[WorkloadBalanceDocument] = Field(description="The workloads that were given.")
