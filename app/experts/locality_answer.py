"""Shares that stay on GPUs and in nodes from layer to layer, as the API and ``--json`` answer them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from app.documents.values import Holds, ValueAnswer
from app.experts.judging import Locality, Stays
from app.experts.wanted import ChainTerms
from solver.experts.chains import Chained


class StaysAnswer(ValueAnswer[Stays]):
    """Shares of the counted transitions of tokens from an expert to one of the next layer."""

    on_gpu: Annotated[float, Holds("on_rank")] = Field(description="Both experts lie on one GPU.", examples=[0.34])
    in_node: float = Field(description="Both lie in one node, on one GPU or two.", examples=[0.58])


class LocalityAnswer(ValueAnswer[Locality]):
    """Transitions that stay under one workload, before and after."""

    this_map: Annotated[StaysAnswer, Holds("own")] = Field(description="This map.")
    in_order: StaysAnswer = Field(description="Experts in their order.")
    balance_alone: Annotated[StaysAnswer, Holds("balanced")] = Field(
        description="The map that balances best and follows no transitions."
    )


class FollowedAnswer(BaseModel):
    """Worth of a map by transitions, beside the best one found and a bound.

    Worth: 1 for each transition that stays on its GPU, for one that stays in its node alone 1 less the price of a
    change of GPU inside a node, else 0; as a share of all transitions planned for.
    """

    worth: float = Field(description="Worth of this map.", examples=[0.342])
    most_worth: float = Field(
        description="Worth of the best map found without regard to balance.", examples=[0.349]
    )
    bound: float = Field(description="No map exceeds it.", examples=[0.349])
    exact: bool = Field(description="Whether the best map found is proven to be the best.", examples=[True])
    kept: float = Field(description="This map's worth beside the best found.", examples=[0.981])
    least_locality: float = Field(description="As asked: so much of the best found is kept.", examples=[0.98])
    inside_node_price: float = Field(
        description="Cost of a change of GPU inside a node beside one between nodes.", examples=[0.125]
    )


def followed_answer(chained: Chained | None, terms: ChainTerms | None) -> FollowedAnswer | None:
    """The answer for a map by transitions; ``None`` for others."""
    if chained is None or terms is None:
        return None
    return FollowedAnswer(
        worth=chained.worth,
        most_worth=chained.most_worth,
        bound=chained.bound,
        exact=chained.exact,
        kept=chained.worth / chained.most_worth if chained.most_worth else 1.0,
        least_locality=terms.least_locality,
        inside_node_price=terms.prices.inside / terms.prices.between,
    )
