"""How far a search for serving is, in the unit of its objective."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from app.db.status import PlanStatus
from app.web.planning.progress import progress_now
from cluster_models.serving.goal import ServingObjective
from solver.problem import Progress

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_search_for_serving_tells_of_its_objective() -> None:
    """Groups, the best and the bound; it can be stopped once there is a best, and its bar claims no share."""
    record: Any = SimpleNamespace(
        status=PlanStatus.RUNNING, created_at=NOW - timedelta(seconds=3), course=(), is_stopping=False
    )
    load = ServingObjective.GOODPUT
    record.progress = Progress(2.0, "pricing", 969, 969, None, None, None, None, load)
    assert not progress_now(record, NOW).can_stop
    record.progress = Progress(2.5, "choosing", 969, 969, None, None, 0.05, "8 x tp8", load, 19e3, 2e4)
    shown = progress_now(record, NOW)
    assert (shown.words, shown.share, shown.can_stop) == ("Best so far: 8 x tp8, 19,000 tokens/s.", None, True)
    assert dict(shown.figures) == {
        "elapsed": "3 s",
        "phase": "choosing",
        "groups priced": "969",
        "best so far": "19,000 tokens/s",
        "no plan can beat": "20,000 tokens/s",
        "gap": "5.00 %",
    }
