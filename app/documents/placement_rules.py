"""Rules of a workload for the nodes under its plan, as its owner writes them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from app.documents.reading import Count, Text
from app.documents.values import ValueDocument
from cluster_models.cluster.topology import MOST_NODES
from cluster_models.training.placement_rules import KeepTogether, PlacementRules, RankGroup, Spares, Spread

_MOST_RULES: Final = 100
_GROUPS: Final = (
    "data (the replicas of one rank: copies of the same weights), pipeline (a whole replica), stage, tensor, "
    "context (a tensor x context group), expert, or job (all ranks)"
)
_LABELS: Final = "A label of the nodes: leaf, rack, zone, ...; node and nvlink_domain always exist."


class SpreadDocument(ValueDocument[Spread]):
    """Ranks that must not all sit in one place."""

    group: RankGroup = Field(description=f"Which ranks, in every group of the kind: {_GROUPS}.", examples=["data"])
    over: Text = Field(description=_LABELS, examples=["leaf"])
    at_least: Count | None = Field(
        None, description="Places that each group reaches; absent: no two of its ranks share one.", examples=[2]
    )


class KeepTogetherDocument(ValueDocument[KeepTogether]):
    """Ranks that must sit in one place, or in a few."""

    group: RankGroup = Field(
        description=f"Which ranks, in every group of the kind: {_GROUPS}.", examples=["pipeline"]
    )
    within: Text = Field(description=_LABELS, examples=["zone"])
    at_most: Count = Field(1, description="Places that each group may use.", examples=[1])


class SparesDocument(ValueDocument[Spares]):
    """Healthy nodes that the plan leaves free."""

    count: Annotated[Count, Field(le=MOST_NODES)] = Field(
        description="Nodes in state ready that stay out of the plan and could take a host's part.", examples=[1]
    )
    per: Text | None = Field(
        None, description=f"In each place that the plan uses; absent: in all.  {_LABELS}", examples=["leaf"]
    )


class PlacementRulesDocument(ValueDocument[PlacementRules]):
    """All that is asked of the nodes; a plan keeps every rule, or there is none."""

    spread: list[SpreadDocument] = Field(
        default_factory=list, max_length=_MOST_RULES, description="Who must sit apart.", examples=[[]]
    )
    keep_together: list[KeepTogetherDocument] = Field(
        default_factory=list, max_length=_MOST_RULES, description="Who must sit together.", examples=[[]]
    )
    spares: list[SparesDocument] = Field(
        default_factory=list, max_length=_MOST_RULES, description="Which nodes stay free.", examples=[[]]
    )
    require_nodes: list[Text] = Field(
        default_factory=list,
        max_length=MOST_NODES,
        description="Nodes that must be among the hosts.",
        examples=[["cnode2-001"]],
    )

    def to_value(self) -> PlacementRules:
        """The domain value, each rule once."""
        return PlacementRules(**{name: tuple(dict.fromkeys(rules)) for name, rules in self.attributes().items()})
