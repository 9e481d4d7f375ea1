"""Why no training plan fits, and what would help, in words."""

from __future__ import annotations

from app.presentation.sentences import sentences
from cluster_models.training.plan import NoPlan


def reason_of(answer: NoPlan) -> str:
    """All that stands against every plan."""
    return " ".join(sentences(answer.reasons))
