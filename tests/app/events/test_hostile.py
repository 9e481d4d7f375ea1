"""Whatever arrives, an adapter answers with reports, entries left unread, or one clear refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.events.payloads import MOST_UNREAD
from app.events.reading import Reported
from app.events.registry import ADAPTERS, adapter_named
from cluster_models.errors import InvalidInput
from cluster_models.health.events import Entity, EntityKind, HealthEvent
from tests.app.events.reports import NOW, read

WORDS = st.sampled_from(
    (
        *("n1", "n[1-3]", "n[", "", "3", "failed", "True", "False", "Ready", "firing", "resolved", "closed", "GPU"),
        *("2026-03-01T12:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "10.0.0.1:9"),
        *("Node", "Event", "KubeNodeNotReady", "GpuXidError", "AWS Health Event", "i-0123456789abcdef0"),
        *("\x00", "\ud800", "x" * 500),
    )
)
LEAVES = WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


def keys_of(value: Any) -> set[str]:
    """Every key in a value."""
    if isinstance(value, dict):
        return set(value).union(*(keys_of(each) for each in value.values()), *())
    return set().union(*(keys_of(each) for each in value)) if isinstance(value, list) else set()


def mutated(value: Any, leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values shaped like ``value`` with anything in any place."""
    if isinstance(value, dict):
        whole = st.fixed_dictionaries({}, optional={key: mutated(each, leaves) for key, each in value.items()})
    elif isinstance(value, list):
        whole = st.lists(st.one_of([mutated(each, leaves) for each in value] or [leaves]), max_size=4)
    else:
        return st.one_of(st.just(value), leaves)
    return st.one_of(whole, whole, whole, leaves)


JSON_ADAPTERS = sorted(set(ADAPTERS) - {"dcgm", "slurm"})
MORE = {
    "kubernetes": [
        {"kind": "Node", "metadata": {"name": "n1"}, "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
        {
            "kind": "Event",
            "metadata": {"name": "n1.1"},
            "reason": "NodeReady",
            "regarding": {"kind": "Node", "name": "n"},
        },
    ],
    "aws_health": {
        "detail-type": "AWS Health Event",
        "time": "2026-03-01T12:00:00Z",
        "detail": {
            "endTime": "Sat, 14 Mar 2026 10:00:00 GMT",
            "affectedEntities": [{"entityValue": "i-0123456789abcdef0"}],
        },
    },
}


def check(adapter: str, body: bytes) -> Reported | None:
    """Reports as read, which can be stored; ``None`` where the body is refused with a sentence."""
    try:
        reported = ADAPTERS[adapter].read(body, NOW)
    except InvalidInput as refused:
        return _a_sentence(refused)
    for each in reported.events:
        entity = Entity(each.kind, each.told, each.part)
        HealthEvent(entity, each.state, each.occurred_at, "s", each.source_id, each.text, each.code)
        texts = (each.told, each.part, each.source_id, each.text, each.code)
        assert all(text.isprintable() for text in texts)
        assert max(len(each.told), len(each.part)) <= 200
        assert 0 < len(each.source_id) <= 300
        assert len(each.code) <= 200
        assert each.occurred_at <= NOW
    assert len({(each.source_id, each.state) for each in reported.events}) == len(reported.events)
    for unread in reported.unread:
        assert unread.problem
        assert f"{unread.field}{unread.value}".isprintable()
    return reported


def _a_sentence(refused: InvalidInput) -> None:
    assert refused.problem
    assert str(refused).isprintable()


@pytest.mark.parametrize("adapter", JSON_ADAPTERS)
def test_anything_in_any_place_of_a_payload(adapter: str) -> None:
    shapes = [json.loads(ADAPTERS[adapter].example), *([MORE[adapter]] if adapter in MORE else [])]

    @given(st.one_of([mutated(shape, LEAVES) for shape in shapes]))
    @settings(max_examples=75)
    def with_value(value: Any) -> None:
        check(adapter, json.dumps(value).encode())

    with_value()


@pytest.mark.parametrize("adapter", ["dcgm", "slurm"])
def test_anything_in_any_place_of_a_text(adapter: str) -> None:
    pieces = [piece for line in ADAPTERS[adapter].example.split("\n") for piece in line.split(" ")]
    pieces += [
        "\n",
        " ",
        "\n\n",
        "State=",
        "NodeName=",
        "NODELIST STATE\n",
        "a|b",
        "n[1-3]",
        "down ",
        "{",
        "}",
        '"',
        "1e999",
    ]
    pieces += ["NVRM: Xid (PCI:", "Reason=", "9" * 30, "\x00", "é", "n[1-99999]", "STATE|HOSTNAMES\n"]

    @given(st.lists(st.sampled_from(pieces) | st.text(max_size=3), max_size=30), st.sampled_from(["", " ", "\n"]))
    @settings(max_examples=100)
    def with_pieces(parts: list[str], between: str) -> None:
        check(adapter, between.join(parts).encode("utf-8", "surrogatepass"))

    with_pieces()


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_bytes_that_are_no_payload(adapter: str) -> None:
    deep = b"[" * 100_000
    for body in (b"", b"\xff\xfe\x00", b"null", b"true", deep, b'{"a":' * 50_000, b"9" * 20_000, b"NaN", b"[NaN]"):
        reported = check(adapter, body)
        assert reported is None or not reported.events


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_examples_are_read_in_full_and_alike_each_time(adapter: str) -> None:
    example = ADAPTERS[adapter].example
    reported = read(adapter, example)
    assert reported.events
    assert reported.unread == ()
    assert read(adapter, example) == reported


def test_only_so_many_entries_are_shown() -> None:
    reported = read("alertmanager", {"alerts": [None] * (MOST_UNREAD + 7)})
    assert len(reported.unread) == MOST_UNREAD + 1
    assert reported.unread[-1].value == "7"


def test_short_texts_that_stand_for_many_names_are_cut_off() -> None:
    """A list of a few characters may stand for thousands of nodes, and be repeated."""
    reported = read("slurm", "down n[1-4096]\n" * 2_000)
    assert len(reported.events) == 4096
    assert reported.unread[0].problem == "comes after too many names of nodes"


def test_an_unknown_adapter_is_named_with_the_nearest() -> None:
    with pytest.raises(InvalidInput) as refused:
        adapter_named("alertmanger")
    assert "alertmanager" in refused.value.remedy
    assert adapter_named("slurm").known_as.startswith("Slurm")


def test_every_kind_of_part_can_be_told() -> None:
    events = [
        {
            "kind": kind,
            "state": "failed",
            "node": "" if kind == "switch" else "n1",
            "part": "" if kind == "node" else "n2",
        }
        for kind in EntityKind
    ]
    assert [each.kind for each in read("plain", events).events] == list(EntityKind)
