"""How often a cluster fails, measured from its own reports: by the formulas, in words and over HTTP."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.db.engine import SessionFactory, transaction
from app.db.tables import ClusterRow
from app.presentation.reliability import reliability_figures
from app.services.health.reliability import measure_reliability, poisson_interval
from app.settings import Role
from cluster_models.health.events import EntityKind, HealthState
from tests.app.api_client import running
from tests.app.failure_bodies import SITE, failed, store_site
from tests.app.running_rows import CLUSTER, START, add_cluster, report, told


def _at_most(count: int, mean: float) -> float:
    """The chance that a Poisson variable of that mean is at most ``count``."""
    return math.fsum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(count + 1))


@pytest.mark.parametrize("count", [0, 1, 9])
def test_the_interval_is_the_exact_one(count: int) -> None:
    """At its ends so few, or so many, failures have a chance of 5 %."""
    low, high = poisson_interval(count)
    assert _at_most(count, high) == pytest.approx(0.05)
    assert _at_most(count - 1, low) == pytest.approx(0.95 if count else 0.0)
    assert (low == 0.0) is (count == 0)


def test_rates_and_repairs_follow_from_the_reports(sessions: SessionFactory) -> None:
    """Two failures of eight nodes in ten days; a switch is not a failure of a node; an unknown name is nothing."""
    with transaction(sessions) as session:
        session.get_one(ClusterRow, add_cluster(session)).created_at = START
        session.flush()
        reports = (
            told("n0", at_s=1000),
            told("n0", HealthState.RECOVERED, at_s=4600),
            told("n0", at_s=90_000, kind=EntityKind.GPU, part="1"),
            told("", kind=EntityKind.SWITCH, part="leaf:leaf-1", at_s=5000),
            told("stranger", known=False, at_s=5000),
        )
        report(session, *reports, at_s=100_000)
        found = measure_reliability(session, reference=CLUSTER, now=START + timedelta(days=10))
        assert (found.failures, found.node_days) == (2, pytest.approx(80.0))
        assert found.failures_per_node_day == pytest.approx(2 / 80)
        assert found.failures_per_node_day_low < 2 / 80 < found.failures_per_node_day_high
        kinds = {each.kind: (each.outages, each.repaired, each.between_s, each.repair_s) for each in found.kinds}
        assert kinds[EntityKind.NODE] == (1, 1, 864_000.0, 3600.0)
        assert kinds[EntityKind.GPU] == (1, 0, 864_000.0, None)
        assert kinds[EntityKind.SWITCH][0] == 1
        assert kinds[EntityKind.LINK] == (0, 0, None, None)
        assert found.worst == (("n0", 2),)
        words = dict(reliability_figures(found))
        assert words["whole nodes"] == "1 outage, one every 10 days; back after 1 h on average (1 of them)"
        assert words["per 1,000 nodes a day"].startswith("25 (")


def test_a_cluster_without_reports_has_an_upper_end_only(tmp_path: Path) -> None:
    """Over HTTP; a failure counts at once, and the page of failures has the figures."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store_site(client)
        quiet = client.get(f"{SITE}/reliability").json()
        assert (quiet["failures"], quiet["failures_per_node_day_low"], quiet["worst"]) == (0, 0.0, [])
        assert quiet["failures_per_node_day_high"] > 0
        failed(client, "n5", occurred_at=datetime.now(UTC).isoformat())
        assert client.get(f"{SITE}/reliability").json()["worst"] == [{"node": "n5", "failures": 1}]
        assert "failed most often" in client.get(f"/clusters/{CLUSTER}/failures").text
