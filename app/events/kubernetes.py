"""Kubernetes: nodes, lists of them and watch events, and events (of the API group) about nodes.

A node says how it is, all at once: one verdict, the worst of its conditions, taints and marks, is reported as a
sighting (``cluster_models.health.kubernetes``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from pydantic import Field

from app.events.payloads import BODY, Payload, ReportCollector, digest, entry, json_values, listed, moment
from app.events.reading import Adapter, Reported
from cluster_models.errors import InvalidInput
from cluster_models.health.events import HealthState
from cluster_models.health.kubernetes import EVENT_REASONS, Condition, NodeStatus, Taint, Verdict, gpus_in, verdicts
from cluster_models.health.states import SEVERITY
from readers.frame.trees import mapping

_LISTS: Final = ("NodeList", "List", "EventList")
_REMEDY: Final = "send what kubectl get nodes -o json prints, or what a watch of nodes or events sends"


class _Metadata(Payload):
    name: str
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - as Kubernetes writes it
    creationTimestamp: str = ""  # noqa: N815
    labels: Any = None
    deletionTimestamp: str | None = None  # noqa: N815


class _Condition(Payload):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    lastTransitionTime: str | None = None  # noqa: N815


class _Taint(Payload):
    key: str
    value: str | None = None
    effect: str = ""
    timeAdded: str | None = None  # noqa: N815


class _NodeSpec(Payload):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _NodeStatus(Payload):
    conditions: list[_Condition] | None = None
    capacity: Any = None
    allocatable: Any = None


class _Node(Payload):
    metadata: _Metadata
    spec: _NodeSpec = Field(default_factory=_NodeSpec)
    status: _NodeStatus = Field(default_factory=_NodeStatus)


class _About(Payload):
    kind: str = ""
    name: str = ""


class _Event(Payload):
    """An event of the core group or of events.k8s.io, whose fields have other names."""

    metadata: _Metadata
    involvedObject: _About | None = None  # noqa: N815
    regarding: _About | None = None
    reason: str = ""
    message: str = ""
    note: str = ""
    type: str = ""
    count: int | None = None
    firstTimestamp: str | None = None  # noqa: N815
    lastTimestamp: str | None = None  # noqa: N815
    eventTime: str | None = None  # noqa: N815


def read_kubernetes(body: bytes, now: datetime) -> Reported:
    """The nodes and events of a body; raises ``InvalidInput`` where it holds neither."""
    taken, objects = ReportCollector(now), 0
    for path, value, deleted in _objects(json_values(body)):
        kind = value.get("kind") if isinstance(value, Mapping) else None
        if kind not in ("Node", "Event"):
            taken.skip(path or BODY, value, "is neither a node nor an event of Kubernetes", _REMEDY)
            continue
        objects += 1
        with taken.entry(path):
            if kind == "Node":
                _take_node(entry(_Node, value, path=path), taken, deleted=deleted)
            elif not deleted:
                _take_event(entry(_Event, value, path=path), taken)
    reported = taken.done()
    if objects == 0 and reported.unread:
        first = reported.unread[0]
        raise InvalidInput(first.field, first.value, first.problem, first.remedy)
    return reported


def _objects(values: list[Any]) -> Iterator[tuple[str, Any, bool]]:
    """Path and value of each object, and whether it was deleted."""
    for number, value in enumerate(values):
        path = f"[{number}]" if len(values) > 1 else ""
        if isinstance(value, list):
            for index, each in enumerate(listed(value, path=path or BODY)):
                yield from _object(f"{path}[{index}]", each)
        else:
            yield from _object(path, value)


def _object(path: str, value: Any) -> Iterator[tuple[str, Any, bool]]:
    deleted = False
    if isinstance(value, Mapping) and "object" in value and "kind" not in value:
        if value.get("type") in ("BOOKMARK", "ERROR"):
            return
        deleted = value.get("type") == "DELETED"
        path, value = f"{path}.object".lstrip("."), value["object"]
    if isinstance(value, Mapping) and value.get("kind") in _LISTS:
        where = f"{path}.items".lstrip(".")
        member = value["kind"].removesuffix("List")
        for index, each in enumerate(listed(value.get("items"), path=where)):
            named = {"kind": member, **each} if member and isinstance(each, Mapping) else each
            yield f"{where}[{index}]", named, deleted
    else:
        yield path, value, deleted


def _take_node(node: _Node, taken: ReportCollector, *, deleted: bool) -> None:
    """One verdict on the node, as it is now."""
    name = node.metadata.name
    findings = [Verdict(HealthState.FAILED, "the node was deleted")] if deleted else list(verdicts(_status(node)))
    uid = node.metadata.uid or name
    if not findings:
        version = node.metadata.resourceVersion or taken.now.isoformat()
        taken.add(
            HealthState.RECOVERED,
            name,
            source_id=digest(uid, "ready", version),
            text="ready, and no problem is known",
            is_sighting=True,
        )
        return
    worst = max(findings, key=lambda each: SEVERITY[each.state])
    said = "; ".join(dict.fromkeys(each.text for each in findings))
    taken.add(
        worst.state,
        name,
        at=worst.since,
        source_id=digest(uid, said, str(worst.since or node.metadata.resourceVersion or taken.now)),
        text=said,
        is_sighting=True,
    )


def _status(node: _Node) -> NodeStatus:
    """The fields that speak of the node's health."""
    return NodeStatus(
        [
            Condition(each.type, each.status, each.reason, each.message, moment(each.lastTransitionTime))
            for each in node.status.conditions or ()
        ],
        [Taint(each.key, each.value or "", each.effect, moment(each.timeAdded)) for each in node.spec.taints or ()],
        mapping(node.metadata.labels),
        cordoned=node.spec.unschedulable is True,
        gpus=gpus_in(mapping(node.status.capacity)),
        healthy_gpus=gpus_in(mapping(node.status.allocatable)),
    )


def _take_event(event: _Event, taken: ReportCollector) -> None:
    """An event about a node; one that says nothing of its health is left out without a word."""
    about = event.involvedObject or event.regarding
    if about is None or about.kind != "Node":
        return
    meaning = EVENT_REASONS.get(event.reason)
    if meaning is None:
        if event.type == "Warning" and event.reason not in EVENT_REASONS:
            remedy = "no rule says what it means for jobs; report it in our own words where it matters"
            raise InvalidInput("reason", event.reason, "is a warning that no rule speaks of", remedy)
        return
    code, state = meaning
    at = moment(event.lastTimestamp) or moment(event.eventTime) or moment(event.metadata.creationTimestamp)
    taken.add(
        state,
        about.name,
        at=at,
        source_id=digest(event.metadata.uid or event.metadata.name, about.name, str(at), str(event.count)),
        text=f"{event.reason}: {event.message or event.note}",
        code=code,
    )


KUBERNETES: Final = Adapter(
    "kubernetes",
    "Kubernetes (nodes, watch events, events about nodes)",
    read_kubernetes,
    '{"type": "MODIFIED", "object": {"kind": "Node", "metadata": {"name": "n3", "uid": "0c1e"}, "status":\n'
    '  {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",\n'
    '    "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-03-01T12:00:05Z"}]}}}',
)
