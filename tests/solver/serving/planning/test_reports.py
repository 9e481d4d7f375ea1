"""Reports of a search for serving while it goes on: progress, drafts, and answers whenever it is stopped."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import count, pairwise
from math import inf
from types import SimpleNamespace
from typing import cast

import pytest

from cluster_models.errors import SolverFailed
from cluster_models.serving.goal import ServingObjective
from cluster_models.serving.plan import ServingPlan, ServingWarningKind
from cluster_models.training.plan import StopReason
from solver.check.serving import check_serving_plan
from solver.problem import Progress
from solver.serving import plan as serving_plan
from solver.serving.plan import plan_serving
from solver.serving.planning import reports
from solver.serving.planning.found import Found
from solver.serving.planning.reports import ServingReports
from solver.serving.planning.settle import Settled
from tests.solver.serving.planning.problems import CHAT, OPTIONS, nodes, problem, served, sound_plan

ASKED = problem(nodes(1, gpus=3), served("llama-3.1-8b", **CHAT), objective="goodput")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are due all the time."""
    monkeypatch.setattr(serving_plan, "ServingReports", partial(ServingReports, due_s=0.0))
    monkeypatch.setattr(reports, "DRAFT_SHARE", 0.0)


@pytest.mark.usefixtures("at_once")
def test_drafts_are_sound_and_change_nothing() -> None:
    """Each passes the check and says what it is, none is worse than one before; the answer is as without them."""
    drafts: list[ServingPlan] = []
    told: list[Progress] = []
    found = plan_serving(ASKED, OPTIONS, on_progress=told.append, on_draft=drafts.append)
    assert isinstance(found, ServingPlan)
    assert drafts
    for draft in drafts:
        assert check_serving_plan(draft, ASKED) == ()
        assert draft.warnings[0].kind is ServingWarningKind.DRAFT
        assert draft.certificate.bound >= found.certificate.objective
    assert all(a.certificate.objective <= b.certificate.objective for a, b in pairwise(drafts))
    assert found == sound_plan(ASKED)
    assert (told[0].incumbent, told[0].objective) == (None, ServingObjective.GOODPUT)
    assert told[-1].incumbent
    assert (told[-1].best, told[-1].bound) == (found.certificate.objective, found.certificate.bound)


@pytest.mark.parametrize("objective", ["goodput", "gpus"])
@pytest.mark.usefixtures("at_once")
def test_a_search_that_is_stopped_answers_with_its_best(objective: str) -> None:
    """Before anything was chosen, and once a plan is known; its bound holds."""
    asked = replace(ASKED, goal=replace(ASKED.goal, objective=ServingObjective(objective)))
    best = sound_plan(asked).certificate.objective
    known: list[str] = []
    for is_cancelled in (lambda: True, lambda: bool(known)):
        found = plan_serving(
            asked,
            OPTIONS,
            on_progress=lambda progress: known.extend([progress.incumbent] if progress.incumbent else []),
            is_cancelled=is_cancelled,
        )
        assert isinstance(found, ServingPlan)
        assert check_serving_plan(found, asked) == ()
        assert found.certificate.stopped_by is StopReason.CANCELLED
        bound = found.certificate.bound
        assert bound >= best if asked.goal.objective.is_maximum else bound <= best


def test_a_draft_that_comes_to_nothing_waits_and_a_worse_plan_does_not_replace_the_best() -> None:
    """Else the choice for a draft would be tried again with every set of groups, for half of the time."""
    drafts: list[Found] = []
    report = ServingReports(OPTIONS, ServingObjective.GOODPUT, on_found=drafts.append, due_s=0.0)
    nothing = Found((), 0.0, inf, StopReason.WORK_LIMIT, (), (), ())
    assert report.draft(nothing) is nothing
    assert (report.best, drafts) == (None, [])
    assert report.due_s > 0.0
    some = (cast("Settled", SimpleNamespace(groups=())),)
    best, worse = (replace(nothing, settled=some, objective=objective) for objective in (2.0, 1.0))
    report.due_s = 0.0
    assert report.draft(best).objective == report.draft(worse).objective == 2.0
    assert [draft.objective for draft in drafts] == [2.0]


@pytest.mark.parametrize("ticks", [1, 3, 5, 8, 13, 21])
@pytest.mark.usefixtures("at_once")
def test_a_sound_plan_comes_whenever_time_is_up(ticks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes a second; there is a plan, or a word that there was no time for one."""
    looks = count()
    monkeypatch.setattr(reports, "time", SimpleNamespace(perf_counter=lambda: float(next(looks))))
    try:
        found = plan_serving(ASKED, replace(OPTIONS, time_limit_s=float(ticks)), on_progress=lambda _: None)
    except SolverFailed as refused:
        assert "allow more than" in str(refused)  # noqa: PT017 - the other answer there may be
        return
    assert isinstance(found, ServingPlan), found
    assert check_serving_plan(found, ASKED) == ()


@pytest.mark.parametrize(
    ("stopped_by", "words"),
    [(StopReason.CANCELLED, "was stopped before it had seen"), (StopReason.TIME_LIMIT, "allow more than")],
)
def test_a_search_without_a_plan_says_what_ended_it(
    stopped_by: StopReason, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop asks for no other time limit."""
    nothing = Found((), 0.0, inf, stopped_by, (), (), ())
    monkeypatch.setattr("solver.serving.plan.search", lambda *_: nothing)
    with pytest.raises(SolverFailed, match=words):
        plan_serving(ASKED, OPTIONS)
