"""Reasons of a decision on failures in sentences, the same on terminal, page, in answers and announcements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from app.presentation.figures import capital
from app.presentation.sentences import sentence, sentences
from app.presentation.sentences.decisions import LIMITS
from cluster_models.jobs.recovery import ConsideredAction, Quarantine
from cluster_models.remarks import Remark
from cluster_models.wording import named


class Explained(Protocol):
    """Reasons that the decision about a job and its summary share."""

    @property
    def causes(self) -> Sequence[Remark]:
        """Losses of the job."""

    @property
    def reasons(self) -> Sequence[Remark]:
        """Action on the job, and what speaks for it."""


def reason_of(made: Explained) -> str:
    """Losses of a job, what is done with it, and what speaks for that, in one sentence."""
    return reason_words(made.causes, made.reasons)


def reason_words(causes: Sequence[Remark], reasons: Sequence[Remark]) -> str:
    """The same of causes and reasons."""
    lost, done = ", and ".join(sentences(causes)), "; ".join(sentences(reasons))
    return _whole(f"{lost}: {done}" if lost else done)


def objection(other: ConsideredAction) -> str:
    """Why an action was not taken, in one sentence: what speaks against it, then its parts."""
    lead, *parts = (
        f"limited by {sentence(each)}" if each.code in LIMITS else sentence(each) for each in other.reasons
    )
    return _whole(f"{lead}: {', '.join(parts)}" if parts else lead)


def keep_out(found: Quarantine) -> str:
    """Why a node should stay out."""
    days = f" in {found.within_s / 86_400:.3g} days" if found.within_s else ""
    where = f" in {named(found.seen_on)}" if found.seen_on else ""
    failed = f"{found.device or found.node} failed {found.failures} times{days}{where}"
    return f"{failed}: keep {found.node} out until it is repaired."


def _whole(clause: str) -> str:
    """A clause as a sentence; names of nodes and degrees keep their first letter."""
    is_name = any(letter.isdigit() for letter in clause.partition(" ")[0])
    return f"{(clause if is_name else capital(clause)).rstrip('.')}."
