"""Models beside the policy in an update of reinforcement learning, and how often a batch is learned from.

PPO (arXiv 1707.06347) trains a critic beside the policy and goes over each batch several times; on language models
a reward model scores the responses (InstructGPT, arXiv 2203.02155, section 3.5).  All are taken to be of the
policy's shape and cut as it is, on the same GPUs in turns (veRL's roles in one pool; HybridFlow, arXiv 2409.19256).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from cluster_models.errors import InvalidWorkload
from cluster_models.training.methods import TrainingMethod

MOST_EPOCHS: Final = 64


@dataclass(frozen=True, slots=True)
class Roles:
    """Beside a policy: a trained ``critic``, a frozen ``reward_model``, and ``epochs`` over a batch.

    The critic has a forward pass for its values before it is trained, the reward model one for its scores; the
    critic's head counts as large as the policy's.
    """

    critic: bool = False
    reward_model: bool = False
    epochs: int = 1

    @property
    def trained(self) -> int:
        """Models that are trained, each with weights, gradients and optimizer states."""
        return 1 + self.critic

    @property
    def steps(self) -> int:
        """Optimizer steps, of one model each, on one part of a batch."""
        return self.epochs * self.trained

    def frozen(self, method: TrainingMethod) -> int:
        """Models that run forward alone, each with its weights."""
        return method.has_reference + self.reward_model

    def passes(self, method: TrainingMethod) -> float:
        """Forward passes for each optimizer step beside that which is trained: those of a batch over its steps."""
        return (method.more_passes + self.critic + self.reward_model) / self.steps

    def check(self, method: TrainingMethod, *, goes: bool) -> None:
        """Raise ``InvalidWorkload`` where the method has no such roles, or all else does not (``goes``)."""
        if not 1 <= self.epochs <= MOST_EPOCHS:
            raise InvalidWorkload("workload.roles.epochs", self.epochs, f"must lie in 1..{MOST_EPOCHS}")
        if self != NO_ROLES and not (method.is_policy and goes):
            problem, remedy = f"go with updates of a policy, not with method {method}", "use method: policy"
            if method.is_policy:
                problem = "go with a whole policy alone, whose states stay on the GPUs"
                remedy = "leave adapters and offload out"
            given = {name: value for name, value in asdict(self).items() if value != getattr(NO_ROLES, name)}
            raise InvalidWorkload("workload.roles", given, problem, f"{remedy}, or leave roles out")


NO_ROLES: Final = Roles()
