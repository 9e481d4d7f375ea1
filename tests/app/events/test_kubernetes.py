"""Nodes of Kubernetes say how they are all at once; events about them say what happened."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster_models.errors import InvalidInput
from tests.app.events.reports import NOW, read, shown

EARLIER = "2026-03-01T11:58:00Z"


def node(
    name: str = "n1", *, conditions: tuple[tuple[str, str], ...] = (("Ready", "True"),), **spec: Any
) -> dict[str, Any]:
    """A node with conditions of a status each."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "17", "labels": {"a": "b"}},
        "spec": {"podCIDR": "10.1.0.0/24", **spec},
        "status": {
            "conditions": [
                {"type": kind, "status": status, "reason": "Why", "message": "words", "lastTransitionTime": EARLIER}
                for kind, status in conditions
            ]
        },
    }


def taint(key: str, effect: str = "NoSchedule") -> dict[str, Any]:
    """A node with one taint."""
    return node(taints=[{"key": key, "effect": effect}])


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (node(), "recovered"),
        (node(conditions=(("Ready", "False"),)), "failed"),
        (node(conditions=(("Ready", "Unknown"),)), "failed"),
        (node(conditions=(("Ready", "True"), ("MemoryPressure", "True"))), "suspected"),
        (node(conditions=(("Ready", "True"), ("MemoryPressure", "False"))), "recovered"),
        (node(conditions=(("Ready", "True"), ("KernelDeadlock", "True"))), "failed"),
        (node(conditions=(("Ready", "True"), ("AcceleratedHardwareReady", "False"))), "failed"),
        (node(conditions=(("Ready", "True"), ("StorageReady", "True"))), "recovered"),
        (node(conditions=(("Ready", "True"), ("OurOwnProblem", "True"))), "suspected"),
        (node(conditions=(("Ready", "True"), ("TerminateScheduled", "True"))), "draining"),
        (node(unschedulable=True), "suspected"),
        (node(conditions=(("Ready", "False"),), unschedulable=True), "failed"),
        (taint("node.kubernetes.io/unreachable", "NoExecute"), "failed"),
        (taint("node.kubernetes.io/unschedulable"), "suspected"),
        (taint("aws-node-termination-handler/spot-itn"), "draining"),
        (taint("nvidia.com/gpu"), "recovered"),
    ],
)
def test_the_worst_of_conditions_and_taints_is_the_verdict(value: dict[str, Any], state: str) -> None:
    reported = read("kubernetes", value)
    assert shown(reported) == [f"node n1 {state}"]
    assert reported.events[0].is_sighting


def test_lists_watches_and_streams_hold_nodes() -> None:
    """Outputs of ``kubectl get -o json``, of a watch, and of ``kubectl get -w -o json``."""
    down = node("n2", conditions=(("Ready", "False"),))
    assert shown(read("kubernetes", {"kind": "List", "items": [node(), down]})) == [
        "node n1 recovered",
        "node n2 failed",
    ]
    bare = {key: value for key, value in down.items() if key != "kind"}
    assert shown(read("kubernetes", {"kind": "NodeList", "items": [bare]})) == ["node n2 failed"]
    stream = "\n".join(
        json.dumps(each)
        for each in (
            {"type": "ADDED", "object": node()},
            {"type": "DELETED", "object": node("n3")},
            {"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "9"}}},
        )
    )
    assert shown(read("kubernetes", stream)) == ["node n1 recovered", "node n3 failed"]


def test_an_event_follows_up_the_finding_that_it_is_about() -> None:
    """``NodeReady`` ends ``NodeNotReady``; events about pods and routine ones say nothing."""

    def event(reason: str, kind: str = "Node", **more: Any) -> dict[str, Any]:
        about = {"involvedObject": {"kind": kind, "name": "n1"}, "lastTimestamp": EARLIER}
        return {"kind": "Event", "metadata": {"name": f"n1.{reason}"}, "reason": reason, **about, **more}

    events = [event("NodeNotReady"), event("NodeReady"), event("Starting"), event("BackOff", "Pod", type="Warning")]
    assert shown(read("kubernetes", events)) == ["node n1 failed Ready", "node n1 recovered Ready"]
    newer = {"kind": "Event", "metadata": {"name": "a"}, "reason": "NodeNotReady", "eventTime": EARLIER}
    newer |= {"regarding": {"kind": "Node", "name": "n1"}, "note": "gone"}
    (found,) = read("kubernetes", newer).events
    assert found.text == "NodeNotReady: gone"
    assert found.occurred_at < NOW
    (unread,) = read("kubernetes", event("NobodyKnows", type="Warning")).unread
    assert (unread.field, unread.value) == ("reason", "NobodyKnows")


def test_what_cannot_be_read_does_not_keep_out_the_rest() -> None:
    broken = [{"kind": "Node", "metadata": {}}, {"kind": "Pod"}, {"kind": ["Node"]}, 7]
    reported = read("kubernetes", [*broken, node()])
    assert [each.told for each in reported.events] == ["n1"]
    assert [each.field for each in reported.unread] == ["[0].metadata.name", "[1]", "[2]", "[3]"]
    assert reported.unread[0].problem == "is missing"


@pytest.mark.parametrize("body", [{"kind": "PodList", "items": []}, {"kind": "Pod"}, [1], "{", "", "7"])
def test_other_payloads_are_refused(body: object) -> None:
    with pytest.raises(InvalidInput):
        read("kubernetes", body)
