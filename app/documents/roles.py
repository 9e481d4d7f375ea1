"""Models beside a policy, as the owner of a training run writes them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.documents.reading import Count, Flag
from app.documents.values import ValueDocument
from cluster_models.training.roles import MOST_EPOCHS, NO_ROLES, Roles


class RolesDocument(ValueDocument[Roles]):
    """Critic and reward model beside a policy, of its shape and cut as it is, and epochs over a batch (PPO)."""

    critic: Flag = Field(
        NO_ROLES.critic,
        description="Whether a critic is trained beside the policy, in turns, after a forward pass for its values.",
        examples=[True],
    )
    reward_model: Flag = Field(
        NO_ROLES.reward_model,
        description="Whether a frozen reward model runs forward over the batch.",
        examples=[False],
    )
    epochs: Annotated[Count, Field(le=MOST_EPOCHS)] = Field(
        NO_ROLES.epochs, description="How often the batch is learned from.", examples=[4]
    )
