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

    @property
    def is_paired(self) -> bool:
        """Whether sequences come in pairs that one micro-batch holds."""
        return self is not TrainingMethod.LIKELIHOOD

    @property
    def has_reference(self) -> bool:
        """Whether a frozen copy of the model runs forward, too."""
        return self is TrainingMethod.DPO
