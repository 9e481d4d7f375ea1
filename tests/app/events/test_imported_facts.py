"""Facts about health in imported files become reports."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.events.imported_facts import from_facts
from cluster_models.readers.facts import HealthFact, Origin, PortFact
from cluster_models.topology import NodeState
from tests.app.events.reports import NOW, shown

ORIGIN = Origin("dmesg.txt", 3, 4)


def fact(entity: str, state: NodeState = NodeState.FAILED, **more: object) -> HealthFact:
    """A fact on n1."""
    return HealthFact(ORIGIN, "n1", entity, state, "Xid 79: off the bus", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "report"),
    [
        (fact("node"), "node n1 failed Xid 79"),
        (fact("gpu:3", NodeState.DEGRADED), "gpu n1:3 degraded Xid 79"),
        (fact("gpu:PCI:0000:4E:00.0"), "gpu n1:PCI:0000:4e:00 failed Xid 79"),
        (fact("nic:ib6", NodeState.UNKNOWN), "nic n1:ib6 suspected Xid 79"),
        (fact("nvswitch:PCI:0000:01:00", NodeState.DRAINING), "node n1 draining Xid 79"),
    ],
)
def test_a_fact_becomes_a_report(found: HealthFact, report: str) -> None:
    assert shown(from_facts([found, PortFact(ORIGIN, "n1", "ib0", "", True, 5e10, "ib")], NOW)) == [report]


def test_a_slow_card_keeps_the_share_that_was_measured() -> None:
    (event,) = from_facts([fact("nic:ib6", bytes_per_s=2e10, threshold_bytes_per_s=4e10)], NOW).events
    assert event.bandwidth_share == 0.5


def test_moments_without_a_zone_are_not_used_and_hosts_are_asked_for() -> None:
    moments = [datetime(2026, 2, 1), datetime(2026, 2, 1, tzinfo=UTC)]  # noqa: DTZ001 - as logs write them
    events = from_facts([fact(f"gpu:{index}", occurred_at=at) for index, at in enumerate(moments)], NOW).events
    assert [event.occurred_at for event in events] == [NOW, moments[1]]
    (unread,) = from_facts([HealthFact(ORIGIN, None, "node", NodeState.FAILED, "x")], NOW).unread
    assert unread.field == "dmesg.txt:3.host"
