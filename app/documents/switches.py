"""Switches whose way up the nodes below share, as the owner of a cluster writes them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from app.documents.reading import Positive, Text
from app.documents.values import Holds, ValueDocument
from cluster_models.cluster.switches import Figure, Switch
from cluster_models.units import GBYTE

MOST_SWITCHES: Final = 4096
_SLOWEST_GBYTES_PER_S: Final = 1e-6
_FASTEST_GBYTES_PER_S: Final = 1e6
_WORST_RATIO: Final = 1e4


class SwitchDocument(ValueDocument[Switch]):
    """A switch: what all nodes below it can send out of it together, and as much in."""

    label: Text = Field(description="The label of the nodes that names the switch over them.", examples=["leaf"])
    name: Text | None = Field(
        None, description="The label's value; absent: every switch of that label that is not named.", examples=["a"]
    )
    uplink_gbytes_per_s: Annotated[Positive | None, Holds("uplink_bytes_per_s", GBYTE)] = Field(
        None,
        ge=_SLOWEST_GBYTES_PER_S,
        le=_FASTEST_GBYTES_PER_S,
        description="Rate of all its uplinks together, each direction.",
        examples=[400.0],
    )
    oversubscription: Positive | None = Field(
        None,
        le=_WORST_RATIO,
        description="In place of the rate: that of all network cards below over that of the uplinks; "
        "1 = non-blocking.",
        examples=[4.0],
    )
    figure: Figure = Field(
        Figure.NOMINAL, description="Where the figure is from: nominal or measured.", examples=["nominal"]
    )
