"""Reports come late, twice and out of order; what they say together does not depend on that."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from app.presentation.decision_reasons import keep_out
from cluster_models.health.conditions import OPERATOR, conditions_of, quarantine_of
from cluster_models.health.events import Entity, EntityKind, HealthEvent, HealthState

START = datetime(2026, 3, 1, tzinfo=UTC)
NODE = Entity(EntityKind.NODE, "n1")


def event(
    minute: float, state: HealthState, *, entity: Entity = NODE, source: str = "probe", number: int = 0
) -> HealthEvent:
    """A report ``minute`` minutes after the start."""
    return HealthEvent(entity, state, START + timedelta(minutes=minute), source, f"{minute:g}-{number}")


def states(events: list[HealthEvent], minute: float) -> dict[str, HealthState]:
    """The states of what is not well."""
    found = conditions_of(events, now=START + timedelta(minutes=minute), hysteresis_s=600)
    return {str(each.entity): each.state for each in found}


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from(HealthState), st.sampled_from(["a", "b"])),
        min_size=1,
        max_size=8,
    ),
    st.randoms(use_true_random=False),
)
def test_order_and_repetition_of_reports_do_not_matter(
    told: list[tuple[int, HealthState, str]], random: object
) -> None:
    events = [
        event(minute, state, source=source, number=index) for index, (minute, state, source) in enumerate(told)
    ]
    shuffled = events + events[: len(events) // 2]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    now = START + timedelta(minutes=31)
    assert conditions_of(shuffled, now=now) == conditions_of(events, now=now)
    assert quarantine_of(shuffled, now=now) == quarantine_of(events, now=now)


def test_a_late_report_of_the_past_changes_nothing() -> None:
    events = [event(0, HealthState.FAILED), event(20, HealthState.RECOVERED), event(5, HealthState.DEGRADED)]
    assert states(events, 31) == {}


def test_a_recovery_is_believed_when_it_has_been_quiet() -> None:
    events = [event(0, HealthState.FAILED), event(2, HealthState.RECOVERED)]
    assert states(events, 3) == {"node n1": HealthState.FAILED}
    assert states(events, 11.9) == {"node n1": HealthState.FAILED}
    assert states(events, 12) == {}
    flapping = [*events, event(11, HealthState.FAILED), event(12.5, HealthState.RECOVERED)]
    assert states(flapping, 13) == {"node n1": HealthState.FAILED}
    assert conditions_of(flapping, now=START + timedelta(minutes=13))[0].failures == 2


def test_the_worst_of_several_sources_holds_until_each_takes_its_word_back() -> None:
    events = [
        event(0, HealthState.SUSPECTED, source="a"),
        event(1, HealthState.FAILED, source="b"),
        event(2, HealthState.RECOVERED, source="a"),
    ]
    assert states(events, 30) == {"node n1": HealthState.FAILED}


def test_the_operator_overrules_what_was_said_before() -> None:
    events = [event(0, HealthState.FAILED), event(1, HealthState.RECOVERED, source=OPERATOR)]
    assert states(events, 12) == {}
    assert states([*events, event(5, HealthState.FAILED, number=1)], 12) == {"node n1": HealthState.FAILED}


def test_what_flaps_failed_once() -> None:
    """Eleven failures in less time than a recovery takes to be believed are one outage, and no quarantine."""
    flaps = [event(index, HealthState.FAILED, number=index) for index in range(0, 22, 2)]
    flaps += [event(index + 1, HealthState.RECOVERED, number=index) for index in range(0, 22, 2)]
    hour_s = 3600.0
    assert quarantine_of(flaps, now=START + timedelta(days=1), hysteresis_s=hour_s) == ()
    assert [each.failures for each in quarantine_of(flaps, now=START + timedelta(days=1), hysteresis_s=0.0)] == [11]


def test_hardware_takes_its_failures_along() -> None:
    """A GPU that failed in two nodes before keeps the third one out, until somebody repairs that one."""
    moved = [
        event(100 * index, HealthState.FAILED, number=index, entity=Entity(EntityKind.GPU, f"n{index}", "3"))
        for index in range(3)
    ]
    now = START + timedelta(days=1)
    assert quarantine_of(moved, now=now) == ()
    devices = [replace(each, device="GPU-5e0c") for each in moved]
    [advice] = quarantine_of(devices, now=now)
    assert (advice.node, advice.failures) == ("n2", 3)
    assert (advice.device, advice.seen_on) == ("GPU-5e0c", ("n0", "n1", "n2"))
    assert keep_out(advice).startswith("GPU-5e0c failed 3 times in 30 days in n0, n1, n2")
    emptied = event(150, HealthState.RECOVERED, source=OPERATOR, entity=Entity(EntityKind.NODE, "n1"))
    assert len(quarantine_of([*devices, emptied], now=now)) == 1
    repaired = event(250, HealthState.RECOVERED, source=OPERATOR, entity=Entity(EntityKind.NODE, "n2"))
    assert quarantine_of([*devices, repaired], now=now) == ()


def test_repeated_failures_advise_quarantine_once_each() -> None:
    gpu = Entity(EntityKind.GPU, "n1", "3")
    failures = [
        event(0, HealthState.FAILED),
        event(1, HealthState.FAILED, number=1),  # the same failure told again
        event(60, HealthState.RECOVERED),
        event(120, HealthState.FAILED, entity=gpu),
        event(125, HealthState.FAILED, entity=gpu, source="other"),  # and by another source
    ]
    assert quarantine_of(failures, now=START + timedelta(days=1)) == ()
    third = [*failures, event(200, HealthState.FAILED, number=2)]
    [advice] = quarantine_of(third, now=START + timedelta(days=1))
    assert (advice.node, advice.failures) == ("n1", 3)
    assert quarantine_of(third, now=START + timedelta(days=40)) == ()
    repaired = event(300, HealthState.RECOVERED, source=OPERATOR)
    assert quarantine_of([*third, repaired], now=START + timedelta(days=1)) == ()
    told_by_itself = event(300, HealthState.RECOVERED)
    assert len(quarantine_of([*third, told_by_itself], now=START + timedelta(days=1))) == 1
    again = [event(301 + 2 * index, HealthState.FAILED, number=10 + index) for index in range(1)]
    assert quarantine_of([*third, repaired, *again], now=START + timedelta(days=1)) == ()


def coded(minute: float, state: HealthState, code: str) -> HealthEvent:
    """A report of one finding."""
    return replace(event(minute, state), code=code)


def test_a_recovery_of_one_finding_leaves_the_others() -> None:
    """One of two alerts on a node is resolved; a report without a code speaks of all."""
    events = [coded(0, HealthState.FAILED, "disk"), coded(1, HealthState.DRAINING, "spot")]
    ended = [*events, coded(2, HealthState.RECOVERED, "disk")]
    assert states(events, 30) == {"node n1": HealthState.FAILED}
    assert states(ended, 30) == {"node n1": HealthState.DRAINING}
    assert states([*ended, event(3, HealthState.RECOVERED)], 30) == {}


def test_recoveries_that_are_repeated_are_believed_all_the_same() -> None:
    events = [event(0, HealthState.FAILED), *(event(minute, HealthState.RECOVERED) for minute in range(1, 40))]
    assert states(events, 10.9) == {"node n1": HealthState.FAILED}
    assert states(events, 11) == {}
