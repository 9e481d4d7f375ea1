"""Tenants share the solvers: whoever asks for many plans waits behind nobody's back but their own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from app.db.engine import SessionFactory, transaction
from app.db.status import PlanStatus
from app.db.tables import PlanRow
from app.db.tenancy import for_tenant
from app.services.planning import turns
from tests.app.plan_rows import add_plan

LONGEST_S = 60.0


def _ask(sessions: SessionFactory, tmp_path: Path, tenant: str, limit_s: float, *, background: bool = False) -> str:
    own = for_tenant(sessions, tenant)
    plan_id = add_plan(own, tmp_path / "ledger", tenant=tenant, time_limit_s=limit_s)
    with transaction(own) as session:
        turns.take_turn(session, plan_id=plan_id, background=background)
    return plan_id


def _serve(sessions: SessionFactory) -> PlanRow:
    """The next plan, which ends at once."""
    with transaction(for_tenant(sessions, None)) as session:
        row = session.get_one(PlanRow, next(iter(turns.open_turns(session))))
        row.status = PlanStatus.SUCCEEDED
    return row


def test_seconds_are_shared_alike_while_all_wait(sessions: SessionFactory, tmp_path: Path) -> None:
    """However many plans each has in line, and of whatever length: to within two of the longest."""
    limits = {"many": [LONGEST_S] * 12, "short": [10.0] * 24, "late": [30.0] * 8}
    for tenant, asked in limits.items():
        for limit_s in asked:
            _ask(sessions, tmp_path, tenant, limit_s)
    served: Counter[str] = Counter(dict.fromkeys(limits, 0))
    left = Counter({tenant: len(asked) for tenant, asked in limits.items()})
    while min(left.values()) > 0:
        row = _serve(sessions)
        served[row.tenant_id] += int(row.options["time_limit_s"])
        left[row.tenant_id] -= 1
        assert max(served.values()) - min(served.values()) <= 2 * LONGEST_S


def test_who_comes_late_does_not_wait_for_the_whole_line(sessions: SessionFactory, tmp_path: Path) -> None:
    """A line of plans by one tenant, half of it done: the first of another tenant waits for two."""
    for _ in range(10):
        _ask(sessions, tmp_path, "many", LONGEST_S)
    for _ in range(5):
        _serve(sessions)
    wanted = _ask(sessions, tmp_path, "late", LONGEST_S)
    assert wanted in {_serve(sessions).id for _ in range(3)}


def test_background_waits_for_all_others(sessions: SessionFactory, tmp_path: Path) -> None:
    """Also for those that come later."""
    background = [_ask(sessions, tmp_path, "one", LONGEST_S, background=True) for _ in range(2)]
    others = [_ask(sessions, tmp_path, tenant, LONGEST_S) for tenant in ("one", "two")]
    assert [_serve(sessions).id for _ in range(4)] == [*others, *background]
