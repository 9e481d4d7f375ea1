"""Decisions as the service answers them, for ``--json``: one document wherever it is asked for."""

from __future__ import annotations

from collections.abc import Mapping

from app.answers.replans import DecisionAnswer
from app.services.decisions.replan_views import AnswerView
from cluster_models.jobs.recovery import BatchDecision
from cluster_models.training.plan import Plan


def decision_text(decision: BatchDecision, names: Mapping[str, str], before: Mapping[str, Plan]) -> str:
    """A decision as JSON text; ``names`` of all jobs and the plans of training jobs before, by job id."""
    untouched = {job_id: names[job_id] for job_id in decision.untouched}
    return view_text(AnswerView(decision, before, untouched))


def view_text(view: AnswerView) -> str:
    """A stored decision as JSON text."""
    return DecisionAnswer.make(view).model_dump_json(indent=2) + "\n"
