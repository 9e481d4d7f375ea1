"""Number formats of what an optimizer keeps, as the owner of a training run writes them."""

from __future__ import annotations

from pydantic import Field

from app.documents.values import ValueDocument
from cluster_models.training.optimizer_states import FULL_STATES, MasterFormat, MomentFormat, OptimizerStates


class OptimizerStatesDocument(ValueDocument[OptimizerStates]):
    """Formats of the optimizer's states; below FP32 where the framework has them."""

    first_moment: MomentFormat = Field(
        FULL_STATES.first_moment, description="Format of Adam's first moment.", examples=["bf16"]
    )
    second_moment: MomentFormat = Field(
        FULL_STATES.second_moment, description="Format of Adam's second moment.", examples=["bf16"]
    )
    master_weight: MasterFormat = Field(
        FULL_STATES.master_weight,
        description="Format of the optimizer's copy of the weights; remainder = the lower half of FP32 weights "
        "whose upper half is the BF16 weight.",
        examples=["remainder"],
    )
