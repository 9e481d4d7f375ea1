"""A storm is a source that reports trouble on many nodes in a short time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cluster_models.health.events import Entity, EntityKind, HealthEvent, HealthState
from cluster_models.health.storms import Storm, storms_of

START = datetime(2026, 3, 1, tzinfo=UTC)


def _event(at_s: float, node: str, source: str = "watch", state: HealthState = HealthState.FAILED) -> HealthEvent:
    moment = START + timedelta(seconds=at_s)
    return HealthEvent(Entity(EntityKind.NODE, node), state, moment, source, f"{node} {at_s}")


@pytest.mark.parametrize(("within_s", "nodes"), [(30.0, 4), (20.0, 3), (5.0, 0)])
def test_nodes_are_counted_in_the_busiest_stretch(within_s: float, nodes: int) -> None:
    """One node every ten seconds, each told twice; a window has both of its ends."""
    events = [_event(10 * index + again, f"n{index}") for index in range(4) for again in (0, 0.1)]
    events[-1] = _event(30.0, "n3")
    found = storms_of(reversed(events), least_nodes=3, within_s=within_s)
    assert found == ((Storm("watch", nodes),) if nodes else ())


def test_sources_are_counted_apart_and_good_news_not_at_all() -> None:
    """Two sources of two nodes each are not a storm of three; nor are recoveries, suspicions and switches."""
    events = [_event(index, f"n{index}", source=f"s{index % 2}") for index in range(4)]
    events += [_event(index, f"n{index}", state=HealthState.RECOVERED) for index in range(9)]
    events += [_event(index, f"n{index}", state=HealthState.SUSPECTED) for index in range(9)]
    switch = Entity(EntityKind.SWITCH, part="leaf:a")
    events.append(HealthEvent(switch, HealthState.FAILED, START, "watch", "1"))
    assert storms_of(events, least_nodes=3, within_s=60.0) == ()
