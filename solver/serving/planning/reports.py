"""Clock of a serving search, and its reports: progress, and what it would answer so far."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from cluster_models.serving.goal import ServingObjective
from solver.problem import (
    DRAFT_SHARE,
    FINISH_S,
    FIRST_DRAFT_S,
    IsCancelled,
    OnProgress,
    Progress,
    SearchOptions,
)
from solver.serving.planning.found import Found, better_of, finite

LAST_S: Final = 1.0
"""Time for the last choice at least: hundredths of a second end without one where cores are busy."""


@dataclass(slots=True)
class ServingReports:
    """Reports of one search; the next draft is due when ``due_s`` are gone, ``best`` is the best plan so far."""

    options: SearchOptions
    objective: ServingObjective
    on_progress: OnProgress | None = None
    on_found: Callable[[Found], None] | None = None
    is_cancelled: IsCancelled = lambda: False
    started: float = field(default_factory=time.perf_counter)
    due_s: float = FIRST_DRAFT_S
    best: Found | None = None

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self.started

    def left_s(self) -> float:
        """Seconds that are left; none once the search is called off."""
        return 0.0 if self.is_cancelled() else self.options.time_limit_s - self.elapsed_s

    def last_s(self) -> float:
        """Seconds for the choice among what is priced, which a search without time or called off makes as well."""
        left_s = max(LAST_S, self.options.time_limit_s - self.elapsed_s)
        return min(left_s, FINISH_S) if self.is_cancelled() else left_s

    def is_due(self) -> bool:
        """Whether somebody waits for a draft."""
        return self.on_progress is not None and self.left_s() > 0 and self.elapsed_s >= self.due_s

    def tell(self, phase: str, groups: int) -> None:
        """Report on a search that has priced so many groups."""
        if self.on_progress is None:
            return
        best = self.best
        self.on_progress(
            Progress(
                elapsed_s=self.elapsed_s,
                phase=phase,
                candidates_total=groups,
                candidates_left=groups,
                incumbent_s=None,
                bound_s=None,
                gap=None if best is None else finite(best.gap),
                incumbent=None if best is None else best.description,
                objective=self.objective,
                best=None if best is None else best.objective,
                bound=None if best is None else finite(best.bound),
            )
        )

    def settle(self, found: Found) -> Found:
        """The best plan so far, now that ``found`` is known, which need not have one; told of."""
        best = better_of(found, self.best, self.objective)
        if best.settled:
            self.best = best
            self.tell("choosing", sum(len(each.groups) for each in found.prices))
        return best

    def draft(self, found: Found) -> Found:
        """Settle ``found``, and draft the best plan where that is due; another try has to wait in any case."""
        # Who has had enough ends the search once a plan is known, and may end its process before the answer.
        is_due = self.left_s() > 0 and self.elapsed_s >= self.due_s
        best = self.settle(found)
        if is_due:
            self.due_s = self.elapsed_s + DRAFT_SHARE * self.options.time_limit_s
            if best.settled and self.on_found is not None:
                self.on_found(best)
        return best
