"""Plans put into the database by hand, for tests of what happens to them afterwards."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.db.engine import SessionFactory, transaction
from app.db.status import OPEN_STATUSES
from app.db.tables import PlanRow, SnapshotRow
from app.settings import DEFAULT_TENANT


def add_plan(sessions: SessionFactory, ledger: Path, *, tenant: str = DEFAULT_TENANT, **options: Any) -> str:
    """A queued plan whose options tell the stand-in solver what to do; returns its id."""
    plan_id, now = uuid.uuid4().hex, datetime.now(UTC)
    with transaction(sessions) as session:
        if session.get(SnapshotRow, (tenant, "s")) is None:
            session.add(SnapshotRow(id="s", cluster_name="c", document={}, created_at=now))
            session.flush()
        session.add(
            PlanRow(
                id=plan_id,
                snapshot_id="s",
                cluster_name="c",
                model_name="m",
                problem={},
                options={"ledger": str(ledger), "time_limit_s": 60.0} | options,
                created_at=now,
            )
        )
    return plan_id


def read_plan(sessions: SessionFactory, plan_id: str) -> PlanRow:
    """The plan as it stands, results included."""
    with sessions() as session:
        row = session.get_one(PlanRow, plan_id)
        session.refresh(row, ["result"])
        return row


def wait_for_end(sessions: SessionFactory, plan_id: str, *, within_s: float = 60.0) -> PlanRow:
    """The plan once it has ended."""
    until = time.monotonic() + within_s
    while (row := read_plan(sessions, plan_id)).status in OPEN_STATUSES:
        assert time.monotonic() < until, f"the plan is still {row.status}"
        time.sleep(0.05)
    return row


def wait_until(condition: Any, *, within_s: float = 60.0) -> None:
    """Return once ``condition()`` holds."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.05)
