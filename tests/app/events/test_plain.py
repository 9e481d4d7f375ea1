"""Reports in our own words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cluster_models.errors import InvalidInput
from tests.app.events.reports import NOW, read, shown


def test_one_a_list_or_a_mapping_of_events() -> None:
    report = {"kind": "gpu", "node": "n1", "part": 3, "state": "failed", "occurred_at": "2026-03-01T12:30:00+01:00"}
    for body in (report, [report], {"events": [report]}):
        reported = read("plain", body)
        assert shown(reported) == ["gpu n1:3 failed"]
        assert (NOW - reported.events[0].occurred_at).total_seconds() == 1800
        assert not reported.events[0].is_sighting
    assert read("plain", report).events[0].source_id == read("plain", [report]).events[0].source_id
    assert shown(read("plain", {"kind": "switch", "part": "leaf:a", "state": "draining"})) == [
        "switch :leaf:a draining"
    ]


def test_what_drains_may_say_until_when_it_works() -> None:
    """Beside any other state that says nothing."""
    entry = {"node": "n1", "state": "draining", "leave_by": "2026-03-14T10:00:00Z"}
    (event,) = read("plain", entry).events
    assert event.leave_by == datetime(2026, 3, 14, 10, tzinfo=UTC)
    with pytest.raises(InvalidInput, match="only what drains is to be left"):
        read("plain", entry | {"state": "failed"})


def test_a_moment_to_come_is_now() -> None:
    """A clock that is ahead must not overrule what is told later."""
    (event,) = read("plain", {"node": "n1", "state": "failed", "occurred_at": "2099-01-01T00:00:00Z"}).events
    assert event.occurred_at == NOW


def test_wrong_entries_are_shown_and_the_others_taken() -> None:
    wrong = [
        {"node": "n1", "state": "broken"},
        {"node": "n1", "state": "failed", "stat": 1},
        {"state": "failed"},
        {"kind": "gpu", "node": "n1", "state": "failed"},
        {"kind": "switch", "node": "n1", "part": "leaf:a", "state": "failed"},
        {"node": "n1", "state": "failed", "id": "twice"},
        {"node": "n2", "state": "failed", "id": "twice"},
        3,
    ]
    reported = read("plain", {"events": wrong})
    assert shown(read("plain", [wrong[5]])) == ["node n1 failed"]
    assert [each.told for each in reported.events] == ["n1"]
    assert [each.field for each in reported.unread] == [
        "events[0].state",
        "events[1].stat",
        "events[2].node",
        "events[3].part",
        "events[4]",
        "events[6].id",
        "events[7]",
    ]
    assert all(each.problem for each in reported.unread)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("", "body"),
        ("{", "body"),
        ("3", "body"),
        ("[]", "body"),
        ({"events": []}, "events"),
        ({"events": 1}, "events"),
        ({"node": "n1"}, "state"),
        ({"node": "localhost", "state": "failed"}, "node"),
    ],
)
def test_other_bodies_are_refused(body: object, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read("plain", body)
    assert refused.value.field == field
