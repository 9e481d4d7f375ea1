"""Which answer of a replan is proposed: the one that was searched for, or the safe one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.db.engine import SessionFactory, transaction
from app.services.decisions import (
    replan_rows,
    replan_solves,
    replans,
)
from app.services.running.running_jobs import JobRecord
from cluster_models.jobs.recovery import BatchDecision, Migration, MovedRank, RecoveryAction
from tests.app.running_rows import (
    decided,
    failed_job,
    plan_on,
    solved,
)

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@on_sqlite
@pytest.mark.parametrize("worth", [0.5, 2.0])
def test_no_proposal_is_worth_less_than_the_safe_answer(sessions: SessionFactory, worth: float) -> None:
    """A search may be cut short; its bound says what either lacks."""
    with transaction(sessions) as session:
        replan_id, a, _b = failed_job(session)
        safe = replace(decided({a: (RecoveryAction.SWAP, plan_on("n7", "n1"))}), objective=1.0, fallback=True)
        revision = replan_rows.row_of(session, replan_id).revision
        assert a.plan is not None
        base = {a.id: a.plan.id}
        assert replan_solves.store_safe(session, replan_id=replan_id, revision=revision, base=base, decision=safe)
        searched = replace(decided({a: (RecoveryAction.WAIT, None)}), objective=worth, bound=4.0, gap=1 - worth / 4)
        solved(session, replan_id, searched)
        summary = replans.get_replan(session, replan_id=replan_id).summary
        assert summary is not None
        assert summary.objective == max(1.0, worth)
        assert summary.gap == pytest.approx(1 - summary.objective / 4)
        assert [job.action for job in summary.jobs] == [RecoveryAction.SWAP if worth < 1 else RecoveryAction.WAIT]


@on_sqlite
@pytest.mark.parametrize(("moved", "worth"), [(1, 0.998), (2, 1.0)])
def test_a_decision_that_moves_less_stands_beside_a_safe_answer_worth_the_same(
    sessions: SessionFactory, moved: int, worth: float
) -> None:
    """A trifle that predictions cannot tell brings the safe answer back only where that moves no more ranks."""

    def swapped(job: JobRecord, ranks: int, value: float) -> BatchDecision:
        found = decided({job: (RecoveryAction.SWAP, plan_on("n7", "n1"))})
        ranks_moved = tuple(MovedRank(rank, rank, "n0", rank, "n7", rank, ()) for rank in range(ranks))
        made = replace(found.jobs[0], migration=Migration(moved=ranks_moved), value_flop=value)
        return replace(found, jobs=(made,), objective=value, bound=4.0, gap=1 - value / 4)

    with transaction(sessions) as session:
        replan_id, a, _b = failed_job(session)
        assert a.plan is not None
        revision, safe = replan_rows.row_of(session, replan_id).revision, replace(swapped(a, 2, 1.0), fallback=True)
        assert replan_solves.store_safe(
            session, replan_id=replan_id, revision=revision, base={a.id: a.plan.id}, decision=safe
        )
        solved(session, replan_id, swapped(a, moved, 0.998))
        summary = replans.get_replan(session, replan_id=replan_id).summary
        assert summary is not None
        assert summary.objective == worth
