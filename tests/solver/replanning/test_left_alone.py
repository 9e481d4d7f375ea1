"""Reasons to leave jobs alone: a least gain, spares kept in reserve, and protection from others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.presentation.decision_reasons import objection, reason_of
from cluster_models.jobs.recovery import RecoveryAction
from solver.replanning.problem import ReplanOptions
from tests.solver.replanning.samples import SAME_SHAPE, after, cluster, job, names, replan
from tests.solver.replanning.test_decide import WHOLE, considered, decided, of_job


@pytest.mark.parametrize(("least", "moves"), [(0.02, False), (0.0, True)])
def test_job_that_still_runs_is_not_stopped_for_a_trifle(*, least: float, moves: bool) -> None:
    """A node 3 % slower: leaving it gains less than the 2 % that stopping the job must gain, and that is said."""
    whole = cluster(6, leaf_nodes=6)
    policy = replace(SAME_SHAPE, least_gain_share=least)
    running = job("slow", whole, names(whole, 0, 4), tensor=2, recovery=policy)
    problem = replan(after(whole, slow={"n02": 1.03}), [running], spares=["n05"])
    decision = decided(problem)
    made = of_job(decision, "slow")
    assert made.action is (RecoveryAction.SWAP if moves else RecoveryAction.NONE)
    assert decision.spares_used == (("n05",) if moves else ())
    if not moves:
        assert "and must gain 2 % (least_gain_share)" in objection(considered(made, RecoveryAction.SWAP))
        assert "would gain" in reason_of(made)


@pytest.mark.parametrize(("worth", "takes"), [(0.01, True), (3.0, False)])
def test_spares_are_kept_where_that_is_worth_more(*, worth: float, takes: bool) -> None:
    """A job would grow, and a spare kept is worth next to nothing, or more than what it adds in any shape."""
    whole = cluster(6, leaf_nodes=6)
    half = replace(job("half", whole, names(whole, 0, 2), tensor=1), wanted_gpus=8)
    decision = decided(replan(whole, [half], spare_worth_share=worth))
    assert bool(decision.spares_used) is takes


@pytest.mark.parametrize("may_move", [False, True])
def test_job_that_lost_something_once_stays_protected(*, may_move: bool) -> None:
    """A light job runs on three of four nodes that it wants: a heavy one takes nothing from it unless it may."""
    whole = cluster(8)
    light = job("light", whole, names(whole, 4, 3), tensor=2, recovery=replace(SAME_SHAPE, may_move=may_move))
    heavy = job("heavy", whole, names(whole, 0, 4), tensor=2, weight=10.0, recovery=WHOLE)
    problem = replan(after(whole, failed=["n00"]), [heavy, replace(light, wanted_gpus=8)], spares=[])
    made = of_job(decision := decided(problem), "light")
    assert (made.action is RecoveryAction.NONE) is not may_move
    assert (of_job(decision, "heavy").action is RecoveryAction.SWAP) is may_move
    assert decision.gap <= ReplanOptions().gap
