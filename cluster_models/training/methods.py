"""Methods of training: what a loss compares, and which models it runs."""

from __future__ import annotations

from enum import StrEnum


class TrainingMethod(StrEnum):
    """How a step's sequences become a loss."""

    LIKELIHOOD = "next_token"
    """Each token is predicted from those before it: pre-training, supervised fine-tuning of all weights."""
    DPO = "dpo"
    """Pairs of a chosen and a rejected sequence, next to each other in a micro-batch; a frozen reference model, in
    the format of the trained weights, lies beside them and runs forward in each micro-batch (direct preference
    optimization, arXiv 2305.18290, equation 7)."""
    DPO_STORED = "dpo_stored"
    """The same with log-probabilities of the reference computed before the run (TRL's
    ``precompute_ref_log_probs``), or with losses that ask for none (SimPO, ORPO)."""
    POLICY = "policy"
    """Responses that an engine generated before are weighed by their advantages (PPO, arXiv 1707.06347; GRPO, arXiv
    2402.03300); one forward pass before the update has their log-probabilities under the policy that is trained."""
    POLICY_REFERENCE = "policy_reference"
    """The same with a penalty on the distance to a frozen reference model, which runs forward as well."""

    @property
    def is_paired(self) -> bool:
        """Whether sequences come in pairs that one micro-batch holds."""
        return self in (TrainingMethod.DPO, TrainingMethod.DPO_STORED)

    @property
    def is_policy(self) -> bool:
        """Whether it is the training part of reinforcement learning."""
        return self in (TrainingMethod.POLICY, TrainingMethod.POLICY_REFERENCE)

    @property
    def has_reference(self) -> bool:
        """Whether a frozen copy of the model runs forward, too."""
        return self in (TrainingMethod.DPO, TrainingMethod.POLICY_REFERENCE)

    @property
    def more_passes(self) -> int:
        """Forward passes over the sequences of a step beside those that are trained: by it and by its reference."""
        return self.is_policy + self.has_reference
