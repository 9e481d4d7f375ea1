"""Runs to measure next."""

from __future__ import annotations

from app.documents.experiments import ExperimentsDocument
from solver.fitting.experiments import choose_experiments
from solver.problem import PlanningProblem


def experiments_for(problem: PlanningProblem, *, runs: int) -> ExperimentsDocument:
    """At most so many runs, the most telling first; raises ``InvalidInput`` where none fits."""
    return ExperimentsDocument.from_experiments(choose_experiments(problem, runs))
