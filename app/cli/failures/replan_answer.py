"""Decisions as the service answers them, for ``--json``: one document wherever it is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from app.answers.replans import DecisionAnswer
from app.answers.serving_decisions import ServingDecisionAnswer, SharedDecisionAnswer
from app.services.decisions.replan_views import AnswerView
from cluster_models.jobs.recovery import BatchDecision
from cluster_models.jobs.running import RunningJob
from solver.replanning.together import SharedDecision


def decision_text(decision: BatchDecision, jobs: Sequence[RunningJob]) -> str:
    """A decision about ``jobs`` as JSON text."""
    before = {job.id: job.plan for job in jobs}
    untouched = {job.id: job.name for job in jobs if job.id in decision.untouched}
    return view_text(AnswerView(decision, before, untouched))


def shared_text(decision: SharedDecision, jobs: Sequence[RunningJob]) -> str:
    """A decision about ``jobs`` and deployments as JSON text."""
    before = {job.id: job.plan for job in jobs}
    untouched = {job.id: job.name for job in jobs if job.id in decision.batch.untouched}
    answer = SharedDecisionAnswer(
        training=DecisionAnswer.make(AnswerView(decision.batch, before, untouched)),
        serving=[ServingDecisionAnswer.make(made) for made in decision.serving],
        untouched=list(decision.untouched),
        spares_left=list(decision.spares_left),
        objective=decision.objective,
        bound=decision.bound,
        gap=decision.gap,
    )
    return answer.model_dump_json(indent=2) + "\n"


def view_text(view: AnswerView) -> str:
    """A stored decision as JSON text."""
    return DecisionAnswer.make(view).model_dump_json(indent=2) + "\n"
