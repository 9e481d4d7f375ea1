"""How replicas of a serving deployment start again, as their owners write it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from app.documents.reading import LONGEST_S, Flag, NotNegative, Positive
from app.documents.values import Holds, ValueDocument
from cluster_models.jobs.serving import ServingPolicy
from cluster_models.units import GBYTE

SLOWEST_STORAGE_GBYTES_PER_S: Final = 1e-6
_DEFAULT: Final = ServingPolicy()


class ServingPolicyDocument(ValueDocument[ServingPolicy]):
    """How replicas start again, and what may be done with those that live."""

    storage_gbytes_per_s: Annotated[
        Positive, Field(ge=SLOWEST_STORAGE_GBYTES_PER_S, le=1e9), Holds("storage_bytes_per_s", GBYTE)
    ] = Field(
        _DEFAULT.storage_bytes_per_s / GBYTE,
        description="Rate at which all replicas that start together read their weights, in 10^9 bytes a second.",
        examples=[25.0],
    )
    start_low_s: Annotated[NotNegative, Field(le=LONGEST_S)] = Field(
        _DEFAULT.start_low_s,
        description="Least seconds from the order to the first answer, without reading weights.",
        examples=[30.0],
    )
    start_high_s: Annotated[NotNegative, Field(le=LONGEST_S)] = Field(
        _DEFAULT.start_high_s, description="Most seconds of the same.", examples=[180.0]
    )
    may_replan: Flag = Field(
        _DEFAULT.may_replan,
        description="Whether replicas that live may be stopped for better ones.",
        examples=[True],
    )
    least_gain_share: Annotated[NotNegative, Field(le=1)] = Field(
        _DEFAULT.least_gain_share,
        description="Share of the worth of the answers over the horizon that stopping them must gain.",
        examples=[0.02],
    )
