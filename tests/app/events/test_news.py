"""Sightings are kept where they say something new."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from app.events.news import news
from app.events.reading import ToldEvent
from cluster_models.health.conditions import conditions_of
from cluster_models.health.events import Entity, EntityKind, HealthEvent, HealthState

START = datetime(2026, 3, 1, tzinfo=UTC)
FAILED, RECOVERED = HealthState.FAILED, HealthState.RECOVERED


def told(minute: int, state: HealthState, code: str = "", *, sighting: bool = True, since: int = 0) -> ToldEvent:
    """A report that came at a minute, about what happened ``since`` minutes before."""
    moment = START + timedelta(minutes=minute - since)
    event = HealthEvent(Entity(EntityKind.NODE, "n1"), state, moment, "s", f"{minute}-{state}-{code}", code=code)
    return ToldEvent(event, "n1", True, sighting)


def kept(*reports: ToldEvent) -> list[HealthEvent]:
    """Stored events of reports that come one by one, a minute apart."""
    stored: list[HealthEvent] = []
    for minute, report in enumerate(reports):
        fresh = news([report], stored, now=START + timedelta(minutes=minute))
        assert list(news([report, report], stored, now=START + timedelta(minutes=minute)))[: len(fresh)] == list(
            fresh
        )
        stored.extend(each.event for each in fresh)
    return stored


def test_what_is_seen_again_is_no_news() -> None:
    reports = [told(0, RECOVERED), told(1, FAILED), told(2, FAILED), told(3, RECOVERED), told(4, RECOVERED)]
    assert [event.state for event in kept(*reports)] == [FAILED, RECOVERED]
    assert len(kept(*(replace(each, is_sighting=False) for each in reports))) == 5


def test_a_recovery_without_a_code_ends_all_findings_and_with_one_its_own() -> None:
    reports = [told(0, FAILED, "a"), told(1, FAILED, "b"), told(2, RECOVERED, "c"), told(3, RECOVERED, "a")]
    assert [event.code for event in kept(*reports)] == ["a", "b", "a"]
    ended = kept(*reports, told(4, RECOVERED), told(5, RECOVERED), told(6, FAILED, "b"))
    assert [event.code for event in ended] == ["a", "b", "a", "", "b"]


def test_a_sighting_that_differs_and_claims_to_be_older_counts_as_of_now() -> None:
    """A node was drained at a moment that nobody told, and is back: it was ready long before by its own word."""
    events = kept(told(0, HealthState.DRAINING), told(1, RECOVERED, since=500))
    assert [event.occurred_at for event in events] == [START, START + timedelta(minutes=1)]
    assert conditions_of(events, now=START + timedelta(minutes=60)) == ()


@given(st.lists(st.tuples(st.sampled_from(HealthState), st.integers(0, 90)), min_size=1, max_size=12))
def test_the_last_sighting_holds_however_old_it_claims_to_be(seen: list[tuple[HealthState, int]]) -> None:
    """And what is left out changes nothing: the state is that of the last sighting."""
    events = kept(*(told(minute, state, since=since) for minute, (state, since) in enumerate(seen)))
    found = conditions_of(events, now=START + timedelta(days=1))
    last = seen[-1][0]
    assert [each.state for each in found] == ([] if last is RECOVERED else [last])
