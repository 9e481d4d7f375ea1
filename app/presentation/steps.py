"""Steps that were taken with a decision, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.db.status import ReplanStep
from app.presentation.recovery import moment
from app.services.decisions.replan_steps import StepRecord

_WORDS: Final[Mapping[ReplanStep, str]] = {
    ReplanStep.APPROVED: "approved",
    ReplanStep.STARTED: "begun",
    ReplanStep.JOB_COMPLETED: "runs as decided",
    ReplanStep.APPLIED: "done",
    ReplanStep.FAILED: "failed",
    ReplanStep.CANCELLED: "called off",
    ReplanStep.SUPERSEDED: "overtaken",
}


def step_words(step: StepRecord) -> str:
    """A step with its author and time: "approved by j.doe (not verified), 01 Mar 2026 12:00:07 UTC"."""
    what = _WORDS[step.step] if step.job is None else f"{step.job} {_WORDS[step.step]}"
    doubt = "" if step.actor.verified else " (not verified)"
    by = f" by {step.actor.name}{doubt}" if step.actor.name else ", nobody said by whom"
    return f"{what}{by}, {moment(step.taken_at)}"
