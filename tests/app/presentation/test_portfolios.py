"""A portfolio says why it has no best plan."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from app.db.status import PlanStatus
from app.presentation.portfolios import portfolio_words
from app.services.planning.portfolios import MemberRecord, Portfolio, PortfolioHead
from solver.answer.portfolio import Proof

HEAD = PortfolioHead("id", {"8 GPUs": "a"}, (), datetime(2026, 3, 1, tzinfo=UTC))
NOTHING = Proof(None, None, math.inf)
MEMBER = MemberRecord("8 GPUs", "a", PlanStatus.INFEASIBLE, 8, None, None, None, NOTHING, None)


@pytest.mark.parametrize(
    ("members", "joint", "told"),
    [
        ((MEMBER,), NOTHING, " Nothing fits, which is proven of all."),
        ((MEMBER,), Proof(None, None, None), ""),
        ((MEMBER,), None, " Models, tokens of a step or objectives differ: there is no best of all."),
        ((), None, " All were forgotten since."),
    ],
)
def test_a_portfolio_without_a_best_plan_says_why(
    members: tuple[MemberRecord, ...], joint: Proof | None, told: str
) -> None:
    """Nothing fits, nothing is known yet, plans that differ in their work, and plans that are gone."""
    assert portfolio_words(Portfolio(HEAD, members, joint, None)) == f"1 of 1 plan has ended.{told}"
