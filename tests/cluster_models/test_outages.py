"""Outages of parts, from reports that come twice, flap and contradict each other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cluster_models.health.events import Entity, EntityKind, HealthEvent, HealthState
from cluster_models.health.outages import outages_of

START = datetime(2026, 3, 1, tzinfo=UTC)
FAILED, WELL = HealthState.FAILED, HealthState.RECOVERED


def _event(at_s: float, state: HealthState, source: str = "watch", node: str = "n1") -> HealthEvent:
    moment = START + timedelta(seconds=at_s)
    return HealthEvent(Entity(EntityKind.NODE, node), state, moment, source, f"{source} {at_s} {state}")


def _spans(*events: HealthEvent, hysteresis_s: float = 600.0) -> list[tuple[float, float | None]]:
    found = outages_of(reversed(events), hysteresis_s=hysteresis_s)
    return [
        (
            (each.began - START).total_seconds(),
            None if each.ended is None else (each.ended - START).total_seconds(),
        )
        for each in found
    ]


def test_an_outage_lasts_from_the_first_failure_to_the_recovery() -> None:
    """Told twice it is one; degraded works again; what nobody took back still lasts; suspicions are none."""
    events = (_event(0, FAILED), _event(10, FAILED), _event(100, HealthState.DEGRADED), _event(5000, FAILED))
    assert _spans(_event(-50, HealthState.SUSPECTED), *events) == [(0.0, 100.0), (5000.0, None)]


def test_what_flaps_was_out_all_the_time() -> None:
    """A recovery that does not last is none."""
    events = (_event(0, FAILED), _event(60, WELL), _event(120, FAILED), _event(180, WELL))
    assert _spans(*events) == [(0.0, 180.0)]
    assert _spans(*events, hysteresis_s=60.0) == [(0.0, 60.0), (120.0, 180.0)]


def test_sources_that_report_the_same_outage_count_once() -> None:
    """It ends with the last of them; a second one later stands alone."""
    first = (_event(0, FAILED), _event(100, WELL))
    other = (_event(50, FAILED, "other"), _event(300, WELL, "other"), _event(9000, FAILED, "other"))
    assert _spans(*first, *other) == [(0.0, 300.0), (9000.0, None)]
