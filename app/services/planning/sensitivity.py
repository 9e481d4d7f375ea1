"""Plans of a stored plan's problem on fewer GPUs and after changes; nothing of it is stored."""

from __future__ import annotations

from typing import Final

from app.db.engine import SessionFactory
from app.services.planning import plans
from app.services.subprocesses import in_subprocess
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import NoPlan
from cluster_models.training.sensitivity import Sensitivity
from solver.problem import PlanningProblem, SearchOptions

_BESIDE_SEARCH_S: Final = 60.0
"""Seconds for all that is not a search: starting a process, and pricing."""


def sensitivity_of(sessions: SessionFactory, *, plan_id: str, time_limit_s: float) -> Sensitivity:
    """The sensitivity of a finished plan's problem, worked out beside the web process.

    Raises ``NotFound`` and ``NotReady`` of the plan, and ``InvalidInput`` where it takes too long or nothing fits.
    """
    with sessions() as session:
        plans.get_finished_plan(session, plan_id=plan_id)
        problem = plans.get_problem(session, plan_id=plan_id)
    return in_subprocess(
        analyse,
        problem,
        SearchOptions(time_limit_s=time_limit_s),
        limit_s=time_limit_s + _BESIDE_SEARCH_S,
        what="time_limit_s",
        command="meshwright sensitivity",
    )


def analyse(problem: PlanningProblem, options: SearchOptions) -> Sensitivity:
    """The same of a problem; raises ``InvalidInput`` where nothing fits."""
    # Imported late: only whoever asks pays for loading the solver.
    from solver.sensitivity import sensitivity  # noqa: PLC0415

    found = sensitivity(problem, options)
    if isinstance(found, NoPlan):
        raise InvalidInput("plan", problem.architecture.name, "fits no more", "plan it again to see why")
    return found
