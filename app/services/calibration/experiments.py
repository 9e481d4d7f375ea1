"""Runs to measure next."""

from __future__ import annotations

from app.documents.experiments import ExperimentsDocument
from solver.fitting.experiments import choose_experiments
from solver.problem import PlanningProblem


def experiments_for(problem: PlanningProblem, *, runs: int) -> ExperimentsDocument:
    """Runs that tell most, in that order; raises ``InvalidInput`` where none fits."""
    return ExperimentsDocument.from_experiments(choose_experiments(problem, runs))
