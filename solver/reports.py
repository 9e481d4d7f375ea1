"""Reports of a search to whoever waits for it: its progress, and drafts of its plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cluster_models.remarks import remark
from cluster_models.training.plan import StopReason
from solver.answer.choice import Chosen
from solver.answer.conclusion import conclude, describe
from solver.problem import (
    DRAFT_SHARE,
    FIRST_DRAFT_S,
    OnDraft,
    OnProgress,
    PlanningProblem,
    Progress,
    SearchOptions,
)
from solver.search_state import SearchState


@dataclass(slots=True)
class Reports:
    """Reports of one search; the next draft is due when ``due_s`` are gone and the plan beats that ``drafted``."""

    problem: PlanningProblem
    options: SearchOptions
    on_progress: OnProgress | None = None
    on_draft: OnDraft | None = None
    due_s: float = FIRST_DRAFT_S
    drafted: float = np.inf

    def tell(self, state: SearchState, elapsed_s: float) -> None:
        """Report on a search that goes on since ``elapsed_s``, once it has a plan."""
        if state.best is None:
            return
        if self.on_progress is not None:
            self.on_progress(_progress(state, elapsed_s))
        if self.on_draft is not None and elapsed_s >= self.due_s and state.best_objective < self.drafted:
            self.due_s = elapsed_s + DRAFT_SHARE * self.options.time_limit_s
            self.drafted = state.best_objective
            chosen = Chosen(self.problem.workload.choice, state.best)
            draft = conclude(self.problem, self.options, state, StopReason.TIME_LIMIT, chosen, lambda: 0.0)
            self.on_draft(replace(draft, warnings=(remark("draft"), *draft.warnings)))


def _progress(state: SearchState, elapsed_s: float) -> Progress:
    assert state.best is not None
    best, weight = state.best_objective, float(state.candidates.weight[state.best])
    return Progress(
        elapsed_s=elapsed_s,
        phase="placing",
        candidates_total=state.candidates.total,
        candidates_left=state.left_below(best),
        incumbent_s=best / weight,
        bound_s=state.bound / weight,
        gap=(best - state.bound) / best,
        incumbent=describe(state.candidates.batch, state.best),
    )
