"""Low-rank adapters that a training run trains, as its owner writes them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.documents.reading import Count
from app.documents.values import ValueDocument
from cluster_models.training.adapters import HIGHEST_RANK, AdapterModule, Adapters, FrozenFormat

_DEFAULT = Adapters(1)


class AdaptersDocument(ValueDocument[Adapters]):
    """Adapters beside linear layers of every layer; all other weights are frozen (LoRA, QLoRA)."""

    rank: Annotated[Count, Field(le=HIGHEST_RANK)] = Field(description="Rank of each adapter.", examples=[16])
    modules: list[AdapterModule] = Field(
        list(_DEFAULT.modules),
        min_length=1,
        max_length=len(AdapterModule),
        description="Linear layers with an adapter: linear_qkv (queries, keys, values), linear_proj (output of "
        "attention), linear_fc1 and linear_fc2 (first and second of a dense MLP or shared expert).",
        examples=[["linear_qkv", "linear_proj"]],
    )
    frozen_weights: FrozenFormat = Field(
        _DEFAULT.frozen_weights,
        description="Format of frozen weights of linear layers: unquantised (as they are trained without adapters) "
        "or nf4 (four bits, widened for each product).",
        examples=["nf4"],
    )

    def to_value(self) -> Adapters:
        """The domain value."""
        return Adapters(**self.attributes() | {"modules": tuple(dict.fromkeys(self.modules))})
