"""Amazon EventBridge: events of AWS Health, and notices of EC2 about single instances.

Instances are named by id; aliases of the cluster say which nodes they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from pydantic import Field

from app.events.payloads import BODY, Payload, ReportCollector, digest, entry, json_value, listed, moment
from app.events.reading import Adapter, Reported
from cluster_models.errors import InvalidInput
from cluster_models.health.events import HealthState

_HEALTH: Final = "AWS Health Event"
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}")
_RULES: Final = (
    (re.compile(r"AUTO_RECOVERY_SUCCESS|MAINTENANCE_COMPLETE|_RESOLVED$"), HealthState.RECOVERED),
    (re.compile(r"AUTO_RECOVERY_FAIL|HARDWARE_FAIL|INSTANCE_FAIL|UNREACHABLE"), HealthState.FAILED),
    (re.compile(r"RETIREMENT|MAINTENANCE|STOP_SCHEDULED|TERMINAT|REBOOT|_SCHEDULED$|DRAIN"), HealthState.DRAINING),
    (re.compile(r"DEGRADED|IMPAIR"), HealthState.DEGRADED),
)
"""Meaning of type codes of events about EC2, by the first that fits; others leave the instance suspected."""
_STATES: Final[Mapping[str, HealthState]] = {
    "running": HealthState.RECOVERED,
    "stopping": HealthState.FAILED,
    "stopped": HealthState.FAILED,
    "shutting-down": HealthState.FAILED,
    "terminated": HealthState.FAILED,
}
_REMEDY: Final = "send events of aws.health and aws.ec2 from an EventBridge rule, unchanged"


class _Affected(Payload):
    entityValue: str = ""  # noqa: N815 - as EventBridge writes it
    status: str = ""


class _Words(Payload):
    latestDescription: str = ""  # noqa: N815


class _Detail(Payload):
    """The parts of an event of AWS Health, or of EC2, that are read."""

    eventArn: str = ""  # noqa: N815
    service: str = ""
    eventTypeCode: str = ""  # noqa: N815
    eventTypeCategory: str = ""  # noqa: N815
    statusCode: str = ""  # noqa: N815
    startTime: str = ""  # noqa: N815
    endTime: str = ""  # noqa: N815
    affectedEntities: list[_Affected] = Field(default_factory=list)  # noqa: N815
    eventDescription: list[_Words] = Field(default_factory=list)  # noqa: N815
    instance_id: str = Field("", alias="instance-id")
    instance_action: str = Field("", alias="instance-action")
    state: str = ""


class _Event(Payload):
    id: str = ""
    kind: str = Field(alias="detail-type")
    time: str = ""
    detail: _Detail
    resources: list[str] = Field(default_factory=list)


def read_aws_health(body: bytes, now: datetime) -> Reported:
    """The instances that an event names; raises ``InvalidInput`` where the body is not an event of EventBridge."""
    value = _unwrapped(json_value(body))
    events = listed(value, path=BODY) if isinstance(value, list) else [value]
    if not any(isinstance(each, Mapping) and "detail-type" in each for each in events):
        raise InvalidInput("detail-type", None, "is missing: this is not an event of EventBridge", _REMEDY)
    taken = ReportCollector(now)
    for index, each in enumerate(events):
        path = f"[{index}]" if isinstance(value, list) else ""
        with taken.entry(path):
            event = entry(_Event, each, path=path)
            if event.kind == _HEALTH:
                _take_health(event, taken)
            else:
                _take_notice(event, taken)
    return taken.done()


def _unwrapped(value: Any) -> Any:
    """The event inside a notification of SNS."""
    if isinstance(value, Mapping) and value.get("Type") == "Notification" and isinstance(value.get("Message"), str):
        try:
            return json_value(value["Message"].encode("utf-8", "replace"))
        except InvalidInput as wrong:
            raise InvalidInput("Message", value["Message"][:60], wrong.problem, _REMEDY) from wrong
    return value


def _take_health(event: _Event, taken: ReportCollector) -> None:
    """An event of AWS Health; those of other services than EC2 say nothing of nodes."""
    detail, instances = event.detail, dict(_instances(event))
    if not instances:
        if detail.service not in {"", "EC2"} or detail.eventTypeCategory == "accountNotification":
            return
        problem = "names no instance: it may be about a whole region"
        raise InvalidInput("detail.affectedEntities", detail.eventTypeCode, problem, "look at it in AWS Health")
    state = next((state for rule, state in _RULES if rule.search(detail.eventTypeCode)), HealthState.SUSPECTED)
    at, begins = moment(event.time), _date(detail.startTime)
    said = next((words.latestDescription for words in detail.eventDescription), "")
    until = " from ".join(filter(None, (detail.eventTypeCode, detail.startTime)))
    for instance, status in instances.items():
        over = "closed" in (detail.statusCode.lower(), status.lower()) or status.upper() == "RESOLVED"
        taken.add(
            HealthState.RECOVERED if over else state,
            instance,
            at=(_date(detail.endTime) or at) if over else at,
            source_id=digest(detail.eventArn or event.id, instance, detail.statusCode, status),
            text=f"{until}: {said}" if said else until,
            code=detail.eventTypeCode,
            leave_by=begins if state is HealthState.DRAINING and not over else None,
        )


def _instances(event: _Event) -> Iterator[tuple[str, str]]:
    """Instance ids with their status; of EC2 events also what else their entities are called."""
    entities = [(each.entityValue, each.status) for each in event.detail.affectedEntities]
    for value, status in entities or [(resource, "") for resource in event.resources]:
        name = value.rpartition("/")[2]
        if _INSTANCE.fullmatch(name) is not None:
            yield name, status


def _take_notice(event: _Event, taken: ReportCollector) -> None:
    """A notice of EC2 about one instance; others say nothing of nodes."""
    detail, kind = event.detail, event.kind.casefold()
    if "spot instance interruption" in kind:
        state, text = (
            HealthState.DRAINING,
            f"spot interruption: {detail.instance_action or 'terminate'} in two minutes",
        )
        code = "spot interruption"
    elif "rebalance recommendation" in kind:
        state, text, code = HealthState.SUSPECTED, "a spot interruption is likelier than usual", "rebalance"
    elif "state-change" in kind:
        if (found := _STATES.get(detail.state)) is None:
            return
        state, text, code = found, f"the instance is {detail.state}", ""
    else:
        raise InvalidInput("detail-type", event.kind, "is an event that no rule speaks of", _REMEDY)
    instance = detail.instance_id or next((name for name, _ in _instances(event)), "")
    taken.add(
        state,
        instance,
        at=moment(event.time),
        source_id=digest(event.id or event.time or taken.now.isoformat(), instance, code, detail.state),
        text=text,
        code=code,
    )


def _date(text: str) -> datetime | None:
    """A time as AWS Health writes it ("Fri, 27 Jan 2026 06:02:51 GMT") or of ISO 8601."""
    try:
        return moment(text) or moment(parsedate_to_datetime(text[:60]).isoformat())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


AWS_HEALTH: Final = Adapter(
    "aws_health",
    "AWS Health and EC2 notices (Amazon EventBridge)",
    read_aws_health,
    json.dumps(
        {
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "id": "8d0c3a1e",
            "source": "aws.ec2",
            "time": "2026-03-01T12:00:05Z",
            "detail": {"instance-id": "i-0123456789abcdef0", "instance-action": "terminate"},
        }
    ),
)
