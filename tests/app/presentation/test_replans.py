"""A decision on failures in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from app.presentation.replans import explanation
from app.services.decisions.replan_answers import summary_of
from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.training.plan import StopReason
from solver.replanning.safe import safe_answer
from tests.solver.replanning.samples import four_jobs, one_lost


@pytest.mark.parametrize(
    ("problem", "begins"),
    [
        (one_lost, "one swaps in spares. 1 of "),
        (
            lambda: four_jobs(spares=4),
            "j0, j1, j2, j3 swap in spares. 4 of 4 spare nodes are used. This answer was made",
        ),
    ],
)
def test_decision_and_summary_are_explained_alike(problem: Callable[[], Any], begins: str) -> None:
    """One swaps, four swap; a summary has no more to go by than names, actions and spares."""
    decision = safe_answer(problem())
    told = explanation(decision, [(made.job_name, made.action) for made in decision.jobs])
    summary = summary_of(decision)
    assert told.startswith(begins)
    assert told == explanation(summary, [(made.job, made.action) for made in summary.jobs])
    assert decision.stopped_by is StopReason.NO_SEARCH
    assert {made.action for made in decision.jobs} == {RecoveryAction.SWAP}
