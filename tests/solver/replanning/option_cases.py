"""Asking for options of small jobs, and telling options from refusals."""

from __future__ import annotations

from app.presentation.sentences import sentences
from cluster_models.jobs.recovery import ConsideredAction
from cluster_models.training.plan import Plan
from solver.replanning.options import Answer
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.site import JobSite, site_of
from solver.replanning.touched import lost_gpus


def site(problem: ReplanProblem, index: int = 0) -> JobSite:
    """The site of a job with all spares."""
    running = problem.jobs[index]
    return site_of(problem, running, problem.spares, lost_gpus(problem, running))


def taken(answer: Answer) -> RecoveryOption:
    """An answer that is an option."""
    assert isinstance(answer, RecoveryOption), answer
    return answer


def refusal(answer: Answer) -> str:
    """Why an action cannot be taken."""
    assert isinstance(answer, ConsideredAction), answer
    return " ".join(sentences(answer.reasons))


def plan_of(answer: Answer) -> Plan:
    """The plan of an option that runs."""
    plan = taken(answer).plan
    assert plan is not None
    return plan
