"""Reports of a search while it goes on: drafts of the plan, and answers whenever time is up."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from types import SimpleNamespace

import pytest

from cluster_models.training.plan import Plan, StopReason
from solver import reports, search
from solver.check import check_plan
from solver.reports import Reports
from solver.search import plan
from tests.remarks import codes
from tests.solver.problems import EXACT, nodes, pair_samples, planned, problem, rates_of

ASKED = problem(nodes(3, gpus=2, slowdown={"n1": 1.3}), pair_samples(rates_of(3, [5, 40, 20]), flows=2))


def test_drafts_are_sound_plans_that_only_improve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each passes the check and says what it is; the search ends as it does without them."""
    monkeypatch.setattr(search, "Reports", partial(Reports, due_s=0.0))
    monkeypatch.setattr(reports, "DRAFT_SHARE", 0.0)
    drafts: list[Plan] = []
    found = plan(ASKED, EXACT, on_draft=drafts.append)
    assert isinstance(found, Plan)
    assert drafts
    for draft in drafts:
        assert check_plan(draft, ASKED) == ()
        assert codes(draft.warnings)[0] == "draft"
        assert draft.robustness is None
        assert draft.certificate.bound <= found.certificate.objective
    steps = [draft.time.step_s for draft in drafts]
    assert all(later < earlier for earlier, later in pairwise(steps))
    assert replace(found, provenance=planned(ASKED).provenance) == planned(ASKED)


@pytest.mark.parametrize("ticks", [1, 3, 5, 8, 13, 21, 34, 55, 1000])
def test_a_sound_plan_comes_whenever_time_is_up(ticks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second: pricing, placing and the last look end when so many are gone."""
    monkeypatch.setattr("solver.degrees.promising.WHOLE", 10)
    monkeypatch.setattr("solver.degrees.promising.BLOCK", 10)
    looks = count()
    monkeypatch.setattr(search, "time", SimpleNamespace(monotonic=lambda: float(next(looks))))
    found = planned(ASKED, replace(EXACT, time_limit_s=float(ticks)))
    assert check_plan(found, ASKED) == ()
    late = next(looks) - ticks
    assert (found.certificate.stopped_by is StopReason.TIME_LIMIT) == (late > 0)
    assert late < 40
